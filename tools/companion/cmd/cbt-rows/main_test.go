package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheVersionIsThatOfTheFiles(t *testing.T) {
	out, rows := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(rows, []byte("no row\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	status := run([]string{"reduce", "-o", out, rows})
	data, err := os.ReadFile(out)
	if status != done || err != nil {
		t.Fatal(status, err)
	}
	if text := version(); !strings.HasPrefix(text, fmt.Sprintf("aggregates %d ", data[4])) {
		t.Fatalf("%s, and the files have format %d", text, data[4])
	}
}

func TestExitStatus(t *testing.T) {
	for want, lines := range map[int][][]string{
		done:       {{"version"}, {"reduce", "-h"}},
		unwritten:  {{"show", "/nowhere/a.aggregates"}, {"merge", "-o", "/nowhere/out", "/nowhere/a.aggregates"}},
		wrongUsage: {{}, {"nothing"}, {"show"}, {"reduce", "rows"}, {"export", "--table", "cells", "a.aggregates"}},
	} {
		for _, line := range lines {
			if got := run(line); got != want {
				t.Errorf("%q: exit status %d, want %d", line, got, want)
			}
		}
	}
}
