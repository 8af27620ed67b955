package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

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
