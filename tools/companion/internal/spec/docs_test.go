package spec

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The examples of the manual work, and the package's comment has every key.
func TestManual(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/CBT-LOAD.md")
	if os.IsNotExist(err) {
		t.Skip("no checkout")
	}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) < 2 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, one := range examples {
		if _, err := Parse(one[1]); err != nil {
			t.Errorf("%s\n%v", one[1], err)
		}
	}
	comment, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Parse([]byte(`{"unknown": 1, "spaces": [{"unknown": 1}], "ops": [{"unknown": 1}]}`))
	for _, keys := range regexp.MustCompile(`known are (.*)`).FindAllStringSubmatch(err.Error(), -1) {
		for _, key := range strings.Split(keys[1], ", ") {
			if !regexp.MustCompile(`\b` + key + `\b`).Match(comment) {
				t.Errorf("%s is not in the comment", key)
			}
		}
	}
}
