// Values of JSON, checked: numbers, texts, lists and choices, each error with its key.

package spec

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Errors is everything that is wrong with a spec, each with its key.
type Errors []string

func (f Errors) Error() string { return strings.Join(f, "\n") }

// fields reads the values of one JSON object, and notes every fault instead of stopping at the first.
type fields struct {
	path   string
	values map[string]any
	keys   []string // that this version knows
	errors *Errors
}

func (f *fields) fail(key, format string, args ...any) {
	*f.errors = append(*f.errors, f.path+key+": "+fmt.Sprintf(format, args...))
}

func (f *fields) value(key string, must bool) (any, bool) {
	f.keys = append(f.keys, key)
	value, ok := f.values[key]
	if !ok && must {
		f.fail(key, "is missing")
	}
	return value, ok
}

func (f *fields) number(key string, absent, low, high float64) float64 {
	value, ok := f.value(key, false)
	if !ok {
		return absent
	}
	text, ok := value.(json.Number)
	number, err := text.Float64()
	if !ok || err != nil || math.IsNaN(number) {
		f.fail(key, "must be a number, not %s", shown(value))
		return absent
	}
	if number < low || number > high {
		f.fail(key, "must be from %v to %v, not %s", low, high, text)
		return absent
	}
	return number
}

func (f *fields) integer(key string, absent, low, high int64) int64 {
	value, ok := f.value(key, false)
	if !ok {
		return absent
	}
	return f.wholeNumber(key, value, absent, low, high)
}

func (f *fields) wholeNumber(key string, value any, absent, low, high int64) int64 {
	text, ok := value.(json.Number)
	number, err := text.Int64()
	if ok && err != nil {
		// 60.0 is what some writers of JSON make of 60
		var float float64
		if float, err = text.Float64(); err == nil && float == math.Trunc(float) && math.Abs(float) < 1<<53 {
			number = int64(float)
		} else {
			ok = false
		}
	}
	if !ok {
		f.fail(key, "must be a whole number, not %s", shown(value))
		return absent
	}
	if number < low || number > high {
		f.fail(key, "must be from %d to %d, not %d", low, high, number)
		return absent
	}
	return number
}

func (f *fields) text(key, absent string, must bool) string {
	value, ok := f.value(key, must)
	if !ok {
		return absent
	}
	text, ok := value.(string)
	if !ok {
		f.fail(key, "must be a text, not %s", shown(value))
		return absent
	}
	if must && text == "" {
		f.fail(key, "must not be empty")
	}
	return text
}

// choice is one of two words: true for the second.
func (f *fields) choice(key, first, second, absent string) bool {
	value, ok := f.value(key, false)
	if !ok {
		return absent == second
	}
	if value != first && value != second {
		f.fail(key, "must be %q or %q, not %s", first, second, shown(value))
	}
	return value == second
}

func (f *fields) flag(key string, absent bool) bool {
	value, ok := f.value(key, false)
	if !ok {
		return absent
	}
	flag, ok := value.(bool)
	if !ok {
		f.fail(key, "must be true or false, not %s", shown(value))
	}
	return flag
}

func (f *fields) list(key string, must bool) []any {
	value, ok := f.value(key, must)
	if !ok {
		return nil
	}
	list, ok := value.([]any)
	if !ok {
		f.fail(key, "must be a list, not %s", shown(value))
	} else if must && len(list) == 0 {
		f.fail(key, "must not be empty")
	}
	return list
}

// objects are the members of a list, each with a path of its own.
func (f *fields) objects(key string) []*fields {
	var members []*fields
	for i, value := range f.list(key, true) {
		values, ok := value.(map[string]any)
		if !ok {
			f.fail(fmt.Sprintf("%s[%d]", key, i), "must be an object, not %s", shown(value))
			values = nil
		}
		members = append(members, &fields{path: fmt.Sprintf("%s%s[%d].", f.path, key, i), values: values, errors: f.errors})
	}
	return members
}

// refuseOthers refuses the keys that nobody has read.
func (f *fields) refuseOthers() {
	var unknown []string
	for key := range f.values {
		if !slices.Contains(f.keys, key) {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		f.fail(key, "is not a key of this version; known are %s", strings.Join(f.keys, ", "))
	}
}

func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "this"
	}
	if len(text) > 60 {
		return string(text[:60]) + "..."
	}
	return string(text)
}
