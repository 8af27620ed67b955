package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// Each bucket is asked for with the keys of its owner, which come from the environment.
func TestEachBucketHasItsOwner(t *testing.T) {
	var mu sync.Mutex
	who := map[string]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, key, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ = strings.Cut(key, "/")
		who[r.URL.Path] = key
	}))
	defer server.Close()
	what, err := spec.Parse([]byte(`{"version":1,"hosts":["` + server.URL + `"],"workers":2,"duration":1,
		"spaces":[{"name":"a","bucket":"a","sizes":[[1,1,1]]},{"name":"b","bucket":"b","keys":"2","sizes":[[1,1,1]]},
		{"name":"c","bucket":"c","keys":"2","sizes":[[1,1,1]]}],"ops":[{"op":"GET","spaces":["a"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	config := s3.Config{Hosts: what.Hosts, AccessKey: "first", SecretKey: "x", Workers: 2}
	if _, err := newUsers(what, config); err == nil || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID_2") {
		t.Fatalf("without the keys of the second: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID_2", "second")
	t.Setenv("AWS_SECRET_ACCESS_KEY_2", "y")
	all, err := newUsers(what, config)
	if err != nil {
		t.Fatal(err)
	}
	for _, bucket := range []string{"a", "b", "c", "other"} {
		var result s3.Result
		all.Do(&s3.Request{Op: s3.Stat, Bucket: bucket, Key: "k", Until: time.Now().Add(10 * time.Second)}, &result)
		if result.Kind != "" {
			t.Fatalf("%s: %s", bucket, result.Message)
		}
	}
	if who["/a/k"] != "first" || who["/b/k"] != "second" || who["/c/k"] != "second" || who["/other/k"] != "first" {
		t.Fatalf("%v", who)
	}
	if hosts := all.Hosts(); len(all.every) != 2 || len(hosts) != 1 || !hosts[0].Up {
		t.Fatalf("%d clients, %v", len(all.every), hosts)
	}
	all.Cut()
	var result s3.Result
	all.Do(&s3.Request{Op: s3.Stat, Bucket: "b", Key: "k"}, &result)
	if result.Kind != s3.KindCut {
		t.Fatalf("%+v", result)
	}
}

// A spec without hosts and region, and an environment without keys: all comes from the profile.
func TestTheProfileSignsRequests(t *testing.T) {
	var header http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { header = r.Header }))
	defer server.Close()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"AWS_SHARED_CREDENTIALS_FILE": "[lab]\naws_access_key_id = AK\naws_secret_access_key = SK\naws_session_token = T==\n",
		"AWS_CONFIG_FILE":             "[profile lab]\nregion = r-1\nendpoint_url = " + server.URL + "\n",
		"AWS_ACCESS_KEY_ID":           "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
	} {
		if text != "" {
			path := filepath.Join(folder, name)
			os.WriteFile(path, []byte(text), 0o600)
			text = path
		}
		t.Setenv(name, text)
	}
	t.Setenv("AWS_PROFILE", "lab")
	what, err := spec.Parse([]byte(`{"version":1,"duration":1,"spaces":[{"name":"a","bucket":"a","sizes":[[1,1,1]]}],
		"ops":[{"op":"GET","spaces":["a"]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientConfig(what)
	if err != nil {
		t.Fatal(err)
	}
	all, err := newUsers(what, config)
	if err != nil {
		t.Fatal(err)
	}
	var result s3.Result
	all.Do(&s3.Request{Op: s3.Stat, Bucket: "a", Key: "k", Until: time.Now().Add(10 * time.Second)}, &result)
	signed := header.Get("Authorization")
	if result.Kind != "" || !strings.Contains(signed, "Credential=AK/") || !strings.Contains(signed, "/r-1/s3/") ||
		header.Get("X-Amz-Security-Token") != "T==" || !strings.Contains(signed, "x-amz-security-token") {
		t.Fatalf("%s %v", result.Message, header)
	}
	t.Setenv("AWS_PROFILE", "nobody")
	if _, err := clientConfig(what); err == nil || !strings.Contains(err.Error(), "no profile nobody; there are: lab") {
		t.Fatal(err)
	}
}

func TestASignalDoesNotWaitForANameServer(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	what := &spec.Spec{Spaces: []spec.Space{{Name: "a", Keys: "9"}}}
	_, err := usersUnless(stop, what, s3.Config{Hosts: []string{"http://nobody.invalid"}})
	if err == nil {
		t.Fatal("it has hosts")
	}
	if _, err = usersUnless(make(chan struct{}), what, s3.Config{}); err == nil || err.Error() != "no hosts" {
		t.Fatal(err)
	}
}

func TestArguments(t *testing.T) {
	for _, one := range []struct {
		args         []string
		path, goFile string
		help, fault  bool
	}{
		{[]string{"a.json"}, "a.json", "", false, false},
		{[]string{"a.json", "--go", "g"}, "a.json", "g", false, false},
		{[]string{"--go=g", "a.json"}, "a.json", "g", false, false},
		{[]string{"-h"}, "", "", true, false},
		{[]string{}, "", "", false, true},
		{[]string{"a.json", "--go"}, "", "", false, true},
		{[]string{"a.json", "b.json"}, "", "", false, true},
		{[]string{"--now", "a.json"}, "", "", false, true},
	} {
		path, goFile, help, err := runArguments(one.args)
		if path != one.path || goFile != one.goFile || help != one.help || (err != nil) != one.fault {
			t.Errorf("%v: %q %q %v %v", one.args, path, goFile, help, err)
		}
	}
}

func TestGoWaitsForItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "go")
	stop := make(chan struct{})
	got := make(chan time.Time)
	go func() {
		at, _ := goAt(path)(stop)
		got <- at
	}()
	for _, text := range []string{"", "soon", "NaN", "1e300"} {
		os.WriteFile(path, []byte(text), 0o644)
		select {
		case at := <-got:
			t.Fatalf("%q was taken for %v", text, at)
		case <-time.After(5 * goPoll):
		}
	}
	os.WriteFile(path, []byte("1795251988.25\n"), 0o644)
	if at := <-got; at.Sub(time.Unix(1795251988, 250e6)).Abs() > time.Millisecond {
		t.Fatalf("%v", at)
	}
}

func TestGoEndsWithTheRun(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	if _, ok := goAt(filepath.Join(t.TempDir(), "never"))(stop); ok {
		t.Fatal("it started")
	}
}
