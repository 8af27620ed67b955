package main

import "testing"

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
