package spec

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
)

// A spec without hosts or region asks for them: nothing is to come from whoever runs the tests.
func TestMain(m *testing.M) {
	for _, line := range os.Environ() {
		if name, _, _ := strings.Cut(line, "="); strings.HasPrefix(name, "AWS_") {
			os.Unsetenv(name)
		}
	}
	os.Setenv("HOME", "/nonexistent")
	os.Exit(m.Run())
}

const full = `{ "version": 1, "job": "01-4KiB", "seed": 1, "hosts": ["http://rgw1:7480"], "host_select": "roundrobin", "region": "r",
  "lookup": "host", "verify_tls": false, "payload": "unsigned", "workers": 8, "rate": 10.5, "arrivals": "even",
  "duration": 60.0, "objects": 3, "ramp": 1.5, "deadline": 30.0, "retries": 2, "grace": 5.0, "list_keys": 100, "part_size": 16777216,
  "compressible": 0.5, "verify": true, "state_in": "in", "state_out": "out", "sets_n": true,
  "spaces": [ {"name": "4KiB", "bucket": "b", "prefix": "p/", "numbered": true, "sizes": [[4096, 8192, 1.0]], "rebuild": true},
              {"name": "old", "bucket": "b", "prefix": "keep/", "numbered": false, "limit": 1000000} ],
  "ops": [ {"op": "GET", "share": 45.0, "select": "live", "spaces": ["4KiB","old"]},
           {"op": "PUT", "share": 35.0, "select": "new", "spaces": ["4KiB"]},
           {"op": "DELETE", "share": 5.0, "select": "u(1,2N)", "absent": true, "spaces": ["4KiB"]} ] }`

func TestEveryKeyIsRead(t *testing.T) {
	s, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	if s.Job != "01-4KiB" || s.Seed != 1 || len(s.Hosts) != 1 || !s.RoundRobin || s.Region != "r" || !s.HostStyle || s.VerifyTLS ||
		!s.Unsigned || s.Workers != 8 || s.Works[0].Rate != 10.5 || s.Works[0].Poisson || s.Duration != 60 || s.Objects != 3 || s.Ramp != 1.5 ||
		s.Deadline != 30 || s.Retries != 2 || s.Grace != 5 || s.ListKeys != 100 || s.PartSize != 16<<20 || s.Compressible != 0.5 ||
		!s.Verify || s.StateIn != "in" || s.StateOut != "out" || !s.SetsN || len(s.Spaces) != 2 || len(s.Works) != 1 || len(s.Works[0].Ops) != 3 {
		t.Fatalf("%+v", s)
	}
	if one := s.Spaces[0]; one.Name != "4KiB" || one.Bucket != "b" || one.Prefix != "p/" || !one.Numbered || !one.Rebuild || one.Sizes[0].High != 8192 {
		t.Fatalf("%+v", one)
	}
	if s.Spaces[1].Numbered || s.Spaces[1].Limit != 1000000 {
		t.Fatalf("%+v", s.Spaces[1])
	}
	last := s.Works[0].Ops[2]
	if last.Op != s3.Delete || last.Share != 5 || !last.Absent || last.Select != (Select{Uniform, Bound{0, 1}, Bound{2, 0}}) {
		t.Fatalf("%+v", last)
	}
	if first := s.Works[0].Ops[0]; len(first.Spaces) != 2 || first.Spaces[1] != 1 {
		t.Fatalf("%+v", first)
	}
}

// faults are what is put in place of something in the full spec, and what must be said about it.
var faults = []struct{ old, new, want string }{
	{`"version": 1`, `"version": 2`, "version: must be 1"},
	{`"version": 1, `, ``, "version: is missing"},
	{`"workers": 8`, `"workers": 0`, "workers: must be from 1"},
	{`"workers": 8`, `"workers": "8"`, `workers: must be a whole number, not "8"`},
	{`"workers": 8`, `"workers": 1.5`, "workers: must be a whole number, not 1.5"},
	{`"workers": 8`, `"wrokers": 8`, "wrokers: is not a key"},
	{`"rate": 10.5`, `"rate": -1`, "rate: must be from 0"},
	{`"rate": 10.5`, `"rate": 1e999`, "rate: must be a number"},
	{`"http://rgw1:7480"`, `"rgw1:7480"`, "hosts[0]: must be http://"},
	{`"http://rgw1:7480"`, `"http://rgw1:7480", "https://rgw2"`, "hosts[1]: must be http, as"},
	{`["http://rgw1:7480"]`, `[]`, "hosts: must not be empty"},
	{`"arrivals": "even"`, `"arrivals": "odd"`, `arrivals: must be "poisson" or "even"`},
	{`"verify": true`, `"verify": 1`, "verify: must be true or false"},
	{`[[4096, 8192, 1.0]]`, `[[4096, 8192]]`, "spaces[0].sizes[0]: must be [smallest, largest, share]"},
	{`[[4096, 8192, 1.0]]`, `[[8192, 4096, 1.0]]`, "spaces[0].sizes[0]: the smallest"},
	{`[[4096, 8192, 1.0]]`, `[[1, 1, 0]]`, "spaces[0].sizes: the shares"},
	{`[[4096, 8192, 1.0]]`, `[]`, "spaces[0].sizes: must not be empty"},
	{`"rebuild": true`, `"no_deletes": true`, "spaces[0].no_deletes: goes with rebuild"},
	{`"name": "old"`, `"name": "4KiB"`, "spaces[1].name:"},
	{`"prefix": "keep/", "numbered": false, "limit": 1000000`, `"prefix": "p/", "sizes": [[1,1,1]]`, "spaces[1].prefix: is the prefix of spaces[0]"},
	{`"op": "GET"`, `"op": "HEAD"`, "ops[0].op:"},
	{`"select": "live"`, `"select": "new"`, "ops[0].select: new is for PUT"},
	{`"select": "new"`, `"select": "live"`, "ops[1].select: PUT takes new or a range"},
	{`"u(1,2N)"`, `"u(2N,N"`, "ops[2].select:"},
	{`"u(1,2N)"`, `"u(0,N)"`, "ops[2].select:"},
	{`"u(1,2N)"`, `"u(9,5)"`, "ends before it begins"},
	{`"u(1,2N)"`, `"live"`, "ops[2].absent: needs a range"},
	{`"spaces": ["4KiB"]},`, `"spaces": ["4KiB", "old"]},`, `ops[1].spaces[1]: "old" is not numbered`},
	{`"spaces": ["4KiB"]},`, `"spaces": ["5KiB"]},`, `ops[1].spaces[0]: "5KiB" is not the name`},
	{`"duration": 60.0, "objects": 3`, `"duration": 0, "objects": 0`, "duration: the run would never end"},
}

func TestFaultsNameTheirKey(t *testing.T) {
	for _, one := range faults {
		text := strings.Replace(full, one.old, one.new, 1)
		if text == full {
			t.Fatalf("%s is not in the spec", one.old)
		}
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s\n got: %v\nwant: %s", one.new, err, one.want)
		}
	}
}

const several = `{"version": 1, "hosts": ["http://rgw1:7480"], "duration": 60,
  "spaces": [{"name": "a", "bucket": "b", "prefix": "p/", "objects": 7, "sizes": [[1, 1, 1]]}],
  "works": [{"name": "reads", "workers": 3, "ops": [{"op": "GET", "spaces": ["a"]}]},
            {"name": "puts-2", "workers": 2, "rate": 5, "ops": [{"op": "PUT", "spaces": ["a"]}]}] }`

func TestWorks(t *testing.T) {
	s, err := Parse([]byte(several))
	if err != nil {
		t.Fatal(err)
	}
	puts := &s.Works[1]
	if s.Workers != 5 || len(s.Works) != 2 || puts.Rate != 5 || !puts.Poisson || puts.Workers != 2 || puts.OpName("PUT") != "puts-2:PUT" || s.Spaces[0].Objects != 7 {
		t.Fatalf("%+v", s)
	}
	for _, one := range []struct{ old, new, want string }{
		{`"puts-2"`, `"reads"`, `works[1].name: "reads" is the name of works[0] too`},
		{`"puts-2"`, `"Puts"`, "works[1].name: must be of a-z"},
		{`"name": "reads", `, ``, "works[0].name: is missing"},
		{`"duration": 60`, `"duration": 60, "rate": 1`, "rate: belongs into each of the works"},
		{`"rate": 5`, `"speed": 5`, "works[1].speed: is not a key"},
		{`"op": "PUT", "spaces": ["a"]`, `"op": "PUT", "spaces": ["c"]`, `works[1].ops[0].spaces[0]: "c" is not the name`},
		{`"duration": 60`, `"duration": 0`, "duration: the run would never end"},
		{`"objects": 7`, `"keys": "a"`, "spaces[0].keys: must be a number"},
		{`}],
  "works"`, `}, {"name": "c", "bucket": "b", "prefix": "q/", "keys": "2", "sizes": [[1, 1, 1]]}],
  "works"`, "spaces[1].keys: must be the keys of spaces[0]"},
	} {
		text := strings.Replace(several, one.old, one.new, 1)
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), one.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s\n got: %v\nwant: %s", one.new, err, one.want)
		}
	}
}

func TestAllFaultsAtOnce(t *testing.T) {
	text := full
	for _, at := range []int{0, 2, 6, 12, 13} {
		text = strings.Replace(text, faults[at].old, faults[at].new, 1)
	}
	_, err := Parse([]byte(text))
	var all Errors
	if !errors.As(err, &all) || len(all) != 5 {
		t.Fatalf("%d faults: %v", len(all), err)
	}
}

func TestSelects(t *testing.T) {
	for text, want := range map[string][2]int64{
		"u(1,N)": {1, 500}, "s(N+1,10N)": {501, 5000}, "r(7,7)": {7, 7}, " u( 2N+3 , 4N ) ": {1003, 2000}, "r(1,1000000)": {1, 1000000},
	} {
		s, wrong := parseSelect(text)
		if wrong != "" || s.First.Of(500) != want[0] || s.Last.Of(500) != want[1] {
			t.Errorf("%s: %+v %s", text, s, wrong)
		}
	}
	for _, text := range []string{"", "all", "u(1)", "u(a,b)", "u(-1,N)", "x(1,2)", "u(1,N)x", "u(N+2,N+1)", "r(1,99999999999999999999)"} {
		if _, wrong := parseSelect(text); wrong == "" {
			t.Errorf("%q is taken", text)
		}
	}
	if got := (Bound{999999999, 5}).Of(keyset.Max); got != keyset.Max {
		t.Errorf("%d is beyond what there is", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	for _, one := range faults {
		f.Add([]byte(strings.Replace(full, one.old, one.new, 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err == nil && (s.Workers < 1 || len(s.Works) == 0 || len(s.Works[0].Ops) == 0 || len(s.Hosts) == 0) {
			t.Fatalf("%+v", s)
		}
	})
}

func TestTheEnvironmentNamesTheEndpointAndTheRegion(t *testing.T) {
	bare := strings.NewReplacer(`"hosts": ["http://rgw1:7480"],`, "", `"region": "r",`, "").Replace(full)
	if _, err := Parse([]byte(bare)); err == nil || !strings.Contains(err.Error(), "hosts") {
		t.Fatal(err)
	}
	t.Setenv("AWS_ENDPOINT_URL", "http://all:80/")
	t.Setenv("AWS_DEFAULT_REGION", "d")
	if s, err := Parse([]byte(bare)); err != nil || s.Hosts[0] != "http://all:80" || s.Region != "d" {
		t.Fatal(s, err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://s3:80")
	t.Setenv("AWS_REGION", "a")
	if s, err := Parse([]byte(bare)); err != nil || s.Hosts[0] != "http://s3:80" || s.Region != "a" {
		t.Fatal(s, err)
	}
	if s, err := Parse([]byte(full)); err != nil || s.Hosts[0] != "http://rgw1:7480" || s.Region != "r" {
		t.Fatal(s, err)
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "s3:80")
	if _, err := Parse([]byte(bare)); err == nil {
		t.Fatal("no scheme")
	}
}

func TestTheProfileNamesTheEndpointAndTheRegion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	text := "[profile lab]\nregion = r-1\nservices = s\n[services s]\ns3 =\n  endpoint_url = http://lab:80\n[profile no]\n" +
		"endpoint_url = http://u:SECRET@h\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	bare := strings.NewReplacer(`"hosts": ["http://rgw1:7480"],`, "", `"region": "r",`, "").Replace(full)
	t.Setenv("AWS_CONFIG_FILE", path)
	t.Setenv("AWS_PROFILE", "lab")
	if s, err := Parse([]byte(bare)); err != nil || s.Hosts[0] != "http://lab:80" || s.Region != "r-1" {
		t.Fatal(s, err)
	}
	t.Setenv("AWS_PROFILE", "nobody")
	if s, err := Parse([]byte(full)); err != nil || s.Hosts[0] != "http://rgw1:7480" || s.Region != "r" {
		t.Fatal(s, err)
	}
	var errorLines Errors
	if _, err := Parse([]byte(bare)); !errors.As(err, &errorLines) || len(errorLines) != 2 ||
		!strings.Contains(err.Error(), "hosts: is missing, and ") || !strings.Contains(err.Error(), "no profile nobody; there are: lab, no") {
		t.Fatal(err)
	}
	t.Setenv("AWS_PROFILE", "no")
	if _, err := Parse([]byte(bare)); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Fatal(err)
	}
}
