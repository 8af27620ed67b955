package aws

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/go-ini/ini"
)

// largest is the most bytes of a file.
const largest = 1 << 20

// section has the values of a section by key, in lower case.
type section map[string]string

func credentialsPath() string {
	return expanded(cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), "~/.aws/credentials"))
}

func configurationPath() string {
	return expanded(cmp.Or(os.Getenv("AWS_CONFIG_FILE"), "~/.aws/config"))
}

// places returns the paths of both files.
func places(word string) string {
	return fmt.Sprintf("%s %s %s", credentialsPath(), word, configurationPath())
}

func expanded(path string) string {
	if rest, found := strings.CutPrefix(path, "~/"); found {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// readSections returns the sections of a file by title; none of a file that is not there.
func readSections(path string) (map[string]section, error) {
	text, err := readOwn(path)
	if err != nil || text == nil {
		return map[string]section{}, err
	}
	unreadable := fmt.Errorf("%s: cannot be read as a file of AWS's profiles", path)
	if !utf8.Valid(text) || !hasForm(string(text)) {
		return nil, unreadable
	}
	// a key is taken as it is: without comments behind it, without expansion, and with its quotes
	file, err := ini.LoadSources(ini.LoadOptions{
		AllowNestedValues:       true,
		AllowNonUniqueSections:  true,
		IgnoreContinuation:      true,
		IgnoreInlineComment:     true,
		InsensitiveKeys:         true,
		PreserveSurroundedQuote: true,
		ChildSectionDelimiter:   "\n",
	}, text)
	if err != nil {
		return nil, unreadable
	}
	sections, inherited := map[string]section{}, section{}
	for _, s := range file.Sections() {
		if s.Name() == ini.DefaultSection {
			maps.Copy(inherited, valuesOf(s))
		}
	}
	for _, s := range file.Sections() {
		if s.Name() == ini.DefaultSection {
			continue
		}
		if sections[s.Name()] != nil {
			return nil, unreadable
		}
		sections[s.Name()] = maps.Clone(inherited)
		maps.Copy(sections[s.Name()], valuesOf(s))
	}
	return sections, nil
}

// hasForm tells whether no text is before the first section, and no key is twice in a section, which ini would accept.
func hasForm(text string) bool {
	var keys map[string]bool // of the section; nil before the first
	for _, line := range strings.Split(text, "\n") {
		bare := strings.TrimSpace(line)
		if bare == "" || bare[0] == '#' || bare[0] == ';' {
			continue
		}
		isNested := keys != nil && (line[0] == ' ' || line[0] == '\t')
		switch {
		case isNested:
		case bare[0] == '[':
			keys = map[string]bool{}
		case keys == nil:
			return false
		default:
			key := bare
			if end := strings.IndexAny(bare, "=:"); end >= 0 {
				key = bare[:end]
			}
			key = strings.ToLower(strings.TrimSpace(key))
			if keys[key] {
				return false
			}
			keys[key] = true
		}
	}
	return true
}

func valuesOf(s *ini.Section) section {
	values := section{}
	for _, key := range s.Keys() {
		values[key.Name()] = key.Value()
		if lines := key.NestedValues(); len(lines) > 0 {
			values[key.Name()] = strings.Join(lines, "\n")
		}
	}
	return values
}

// readOwn returns the text of a regular file that nobody else could have written: it says where signed requests go. It is
// nil for a file that is not there, and for /dev/null, by which a variable says that there is none.
func readOwn(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil, nil
	}
	folder, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	facts, hasOwner := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: is not a regular file", path)
	case hasOwner && facts.Uid != 0 && int(facts.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%s: belongs to another user (uid %d)", path, facts.Uid)
	case info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%s: others can write it: chmod go-w it", path)
	case folder.Mode().Perm()&0o002 != 0 && folder.Mode()&fs.ModeSticky == 0:
		return nil, fmt.Errorf("%s: others can write this folder: chmod o-w it", filepath.Dir(path))
	}
	text, err := io.ReadAll(io.LimitReader(file, largest+1))
	if err == nil && len(text) > largest {
		err = fmt.Errorf("%s: has more than %d bytes", path, largest)
	}
	return text, err
}
