package aws

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const keyLines = "aws_access_key_id = AK\naws_secret_access_key = SK\n"

// home makes ~/.aws of a user without variables of AWS.
func home(t *testing.T) string {
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "") // it comes back at the end
		}
	}
	folder := t.TempDir()
	t.Setenv("HOME", folder)
	folder = filepath.Join(folder, ".aws")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	return folder
}

func write(t *testing.T, path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

type recorded struct {
	Credentials, Config *string
	Environment         map[string]string
	Botocore            struct {
		Endpoint, Region *string
		Keys             []string
	}
}

func (r *recorded) check(t *testing.T, profile string) {
	folder := home(t)
	for name, text := range map[string]*string{"credentials": r.Credentials, "config": r.Config} {
		if text != nil {
			write(t, filepath.Join(folder, name), *text)
		}
	}
	t.Setenv("AWS_PROFILE", profile)
	for name, value := range r.Environment {
		t.Setenv(name, value)
	}
	expected := r.Botocore
	for _, one := range []struct {
		find func() (string, error)
		want *string
	}{{Endpoint, expected.Endpoint}, {Region, expected.Region}} {
		if got, err := one.find(); err != nil || (one.want == nil) != (got == "") || one.want != nil && *one.want != got {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got, err := FindKeys(); err != nil || [3]string(expected.Keys) != [3]string{got.Access, got.Secret, got.Session} {
		t.Errorf("%q, %v, not %q", got, err, expected.Keys)
	}
}

func TestAsBotocoreFindsThem(t *testing.T) {
	text, err := os.ReadFile("../../../../tests/data/aws/botocore.json")
	if os.IsNotExist(err) {
		t.Skip("no checkout")
	}
	var tables struct {
		Cases         map[string]*recorded
		ByEnvironment map[string]*recorded `json:"by_environment"`
	}
	if err := json.Unmarshal(text, &tables); err != nil || len(tables.Cases) < 20 || len(tables.ByEnvironment) < 10 {
		t.Fatalf("%d and %d cases, %v", len(tables.Cases), len(tables.ByEnvironment), err)
	}
	for name, one := range tables.Cases {
		t.Run(name, func(t *testing.T) { one.check(t, "lab") })
	}
	for name, one := range tables.ByEnvironment {
		t.Run(name, func(t *testing.T) { one.check(t, "") })
	}
}

func TestVariablesNameTheFiles(t *testing.T) {
	folder := home(t)
	write(t, filepath.Join(folder, "c"), "[lab]\n"+keyLines)
	write(t, filepath.Join(folder, "f"), "[profile lab]\nregion = r-1\n")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/c")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(folder, "f"))
	t.Setenv("AWS_PROFILE", "lab")
	keys, err := FindKeys()
	if region, regionErr := Region(); err != nil || regionErr != nil || keys != (Keys{"AK", "SK", ""}) || region != "r-1" {
		t.Fatal(keys, region, err, regionErr)
	}
}

// As with botocore, the older variables and keys win.
func TestOlderNames(t *testing.T) {
	folder := home(t)
	write(t, filepath.Join(folder, "credentials"), "[a]\n"+keyLines+"aws_session_token = new\naws_security_token = old\n[b]\n")
	t.Setenv("AWS_DEFAULT_PROFILE", "a")
	if keys, err := FindKeys(); err != nil || keys != (Keys{"AK", "SK", "old"}) {
		t.Fatal(keys, err)
	}
	t.Setenv("AWS_PROFILE", "b")
	if keys, err := FindKeys(); err != nil || keys.Access != "AK" {
		t.Fatal(keys, err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "X")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "Y")
	t.Setenv("AWS_SECURITY_TOKEN", "old")
	if keys, err := FindKeys(); err != nil || keys != (Keys{"X", "Y", "old"}) {
		t.Fatal(keys, err)
	}
}

func TestNullIsNoFile(t *testing.T) {
	write(t, filepath.Join(home(t), "credentials"), "[default]\n"+keyLines)
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	if keys, err := FindKeys(); err != nil || keys.Access != "AK" {
		t.Fatal(keys, err)
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/zero")
	if _, err := FindKeys(); err == nil || !strings.Contains(err.Error(), "/dev/zero: is not a regular file") {
		t.Fatal(err)
	}
}

// A run of cbt-plugins gives keys by variables, hosts and region by its spec: files of the node are not read then.
func TestFilesAreReadOnlyWhereTheEnvironmentSaysNothing(t *testing.T) {
	write(t, filepath.Join(home(t), "credentials"), "no file of AWS")
	t.Setenv("AWS_ACCESS_KEY_ID", "AK")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "SK")
	t.Setenv("AWS_SESSION_TOKEN", "T")
	t.Setenv("AWS_REGION", "r-1")
	t.Setenv("AWS_ENDPOINT_URL", "http://a:80")
	keys, err := FindKeys()
	if err != nil || keys != (Keys{"AK", "SK", "T"}) {
		t.Fatal(keys, err)
	}
	if url, err := Endpoint(); err != nil || url != "http://a:80" {
		t.Fatal(url, err)
	}
	if region, err := Region(); err != nil || region != "r-1" {
		t.Fatal(region, err)
	}
	t.Setenv("AWS_REGION", "")
	if _, err := Region(); err == nil {
		t.Fatal("the file was not read")
	}
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	text := func(text string) func(*testing.T, string) {
		return func(t *testing.T, path string) { write(t, path, text) }
	}
	mode := func(mode os.FileMode) func(*testing.T, string) {
		return func(t *testing.T, path string) { os.Chmod(path, mode) }
	}
	for want, change := range map[string]func(*testing.T, string){
		"/.aws/config: no profile lab; there are: none":                func(t *testing.T, path string) { os.Remove(path) },
		"no profile lab; there are: more, other":                       text("[other]\n" + keyLines + "[more]\n"),
		"profile lab has no aws_access_key_id or no aws_secret_access": text("[lab]\naws_access_key_id = AK\n"),
		"by credential_process: run eval \"$(aws configure export-":    text("[lab]\ncredential_process = x\n"),
		"cannot be read as a file of AWS's profiles":                   text("[lab]\n" + keyLines + "  more\n"),
		"/credentials: cannot be read as a file of AWS's profiles":     text("\xff"),
		"credentials: cannot be read as a file of AWS's":               text("[lab]\n" + keyLines + "[lab]\nx = y\n"),
		"s: cannot be read as a file of AWS's profiles":                text(keyLines + "[lab]\nregion = x\n"),
		"/.aws/credentials: cannot be read as a file":                  text("[lab]\n" + keyLines + "AWS_access_key_id =\n"),
		"profile lab: a key has more than one line":                    text("[lab]\naws_access_key_id = AK\naws_secret_access_key =\n  SK\n  x = y\n"),
		"has more than 1048576 bytes":                                  text("[lab]\n" + keyLines + strings.Repeat("# x", 1<<19)),
		"credentials: others can write it":                             mode(0o662),
		"/credentials: others can write it: chmod go-w it":             mode(0o620),
		"others can write this folder: chmod o-w it":                   func(t *testing.T, path string) { os.Chmod(filepath.Dir(path), 0o777) },
		"credentials: is not a regular file": func(t *testing.T, path string) {
			os.Remove(path)
			syscall.Mkfifo(path, 0o600)
		},
		"credentials: belongs to another user (uid 12345)": func(t *testing.T, path string) {
			if os.Chown(path, 12345, 0) != nil {
				t.Skip("only root can give a file away")
			}
		},
	} {
		t.Run(want, func(t *testing.T) {
			path := filepath.Join(home(t), "credentials")
			write(t, path, "[lab]\n"+keyLines)
			change(t, path)
			t.Setenv("AWS_PROFILE", "lab")
			_, err := FindKeys()
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "AK") || strings.Contains(err.Error(), "SK") {
				t.Fatalf("%v", err)
			}
		})
	}
}

func TestKeysThatAreNowhere(t *testing.T) {
	home(t)
	if _, err := FindKeys(); err == nil || !strings.Contains(err.Error(), "no keys: neither AWS_ACCESS_KEY_ID nor AWS_PROFILE") {
		t.Fatal(err)
	}
	if url, err := Endpoint(); url != "" || err != nil {
		t.Fatal(url, err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "AK")
	if _, err := FindKeys(); err == nil || !strings.Contains(err.Error(), "without AWS_SECRET_ACCESS_KEY") {
		t.Fatal(err)
	}
	t.Setenv("HOME", "")
	if region, err := Region(); region != "" || err != nil {
		t.Fatal(region, err)
	}
}
