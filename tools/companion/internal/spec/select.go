package spec

import (
	"regexp"
	"strconv"

	"cbt-plugins/companion/internal/keyset"
)

// How an operation finds its object.
type How byte

const (
	Live       How = 'l' // any that exists
	New        How = 'n' // the next number that no object has had
	Uniform    How = 'u' // any of a range
	Sequential How = 's' // one after the other, again and again
	Once       How = 'r' // each one once
)

// Select is which object an operation takes.
type Select struct {
	How   How
	First Bound
	Last  Bound
}

// Bound is Times x N + Plus.
type Bound struct{ Times, Plus int64 }

// Of is the number that it stands for; never beyond keyset.Max, never below 0.
func (b Bound) Of(n int64) int64 {
	if b.Times > 0 && n > keyset.Max/b.Times {
		return keyset.Max
	}
	return min(b.Times*n+b.Plus, keyset.Max)
}

var (
	rangePattern = regexp.MustCompile(`^\s*([usr])\s*\(([^,()]*),([^,()]*)\)\s*$`)
	boundPattern = regexp.MustCompile(`^\s*(?:(\d{0,9})\s*(N)\s*(?:\+\s*(\d{1,11}))?|(\d{1,11}))\s*$`)
)

func parseSelect(text string) (Select, string) {
	switch text {
	case "live":
		return Select{How: Live}, ""
	case "new":
		return Select{How: New}, ""
	}
	match := rangePattern.FindStringSubmatch(text)
	if match == nil {
		return Select{}, "is live, new, u(a,b), s(a,b) or r(a,b)"
	}
	first, good := parseBound(match[2])
	last, fine := parseBound(match[3])
	switch {
	case !good || !fine:
		return Select{}, "has bounds like 17, N, 2N, N+1, 2N+1"
	case first.Times == 0 && first.Plus < 1:
		return Select{}, "begins at 1 or later"
	case first.Times == last.Times && first.Plus > last.Plus:
		return Select{}, "ends before it begins"
	case first.Plus > keyset.Max || last.Plus > keyset.Max:
		return Select{}, "goes beyond " + strconv.FormatInt(keyset.Max, 10)
	}
	return Select{How: How(match[1][0]), First: first, Last: last}, ""
}

func parseBound(text string) (Bound, bool) {
	match := boundPattern.FindStringSubmatch(text)
	if match == nil {
		return Bound{}, false
	}
	number := func(digits string, absent int64) int64 {
		if digits == "" {
			return absent
		}
		value, _ := strconv.ParseInt(digits, 10, 64) // at most 11 digits
		return value
	}
	if match[2] == "N" {
		return Bound{Times: number(match[1], 1), Plus: number(match[3], 0)}, true
	}
	return Bound{Plus: number(match[4], 0)}, true
}
