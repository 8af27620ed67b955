// Package aws reads the conventions of AWS's tools: keys, endpoint and region, from the environment or from a profile of two
// files. The order is botocore's, as in cbt_plugins/config/aws_profile.py. No error shows a value of a file.
package aws

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"
)

// Keys sign requests; Session is "" for keys of a user.
type Keys struct{ Access, Secret, Session string }

// elsewhere are other sources of keys that a profile may name.
var elsewhere = []string{"credential_process", "sso_session", "sso_start_url", "role_arn", "source_profile", "login_session"}

// FindKeys returns the keys of the environment, else those of the profile.
func FindKeys() (Keys, error) {
	if access := os.Getenv("AWS_ACCESS_KEY_ID"); access != "" {
		keys := Keys{access, os.Getenv("AWS_SECRET_ACCESS_KEY"),
			cmp.Or(os.Getenv("AWS_SECURITY_TOKEN"), os.Getenv("AWS_SESSION_TOKEN"))}
		if keys.Secret == "" {
			return Keys{}, errors.New("no keys: AWS_ACCESS_KEY_ID is in the environment without AWS_SECRET_ACCESS_KEY")
		}
		return keys, nil
	}
	all, err := readProfiles()
	if err != nil {
		return Keys{}, err
	}
	name, named := profileName()
	settings, err := all.settings()
	if err != nil {
		return Keys{}, err
	}
	values := settings
	for _, s := range []section{all.configured[name], all.credentials[name]} {
		if s["aws_access_key_id"] != "" {
			values = s
		}
	}
	token := cmp.Or(values["aws_security_token"], values["aws_session_token"])
	keys := Keys{values["aws_access_key_id"], values["aws_secret_access_key"], token}
	if keys.Access == "" || keys.Secret == "" {
		for _, key := range elsewhere {
			if settings[key] != "" {
				return Keys{}, fmt.Errorf("profile %s has its keys by %s: run eval \"$(aws configure export-credentials --profile '%s'"+
					" --format env)\" first", name, key, name)
			}
		}
		if !named && len(settings) == 0 {
			return Keys{}, errors.New("no keys: neither AWS_ACCESS_KEY_ID nor AWS_PROFILE is in the environment, and " +
				places("and") + " have no profile default")
		}
		return Keys{}, fmt.Errorf("%s: profile %s has no aws_access_key_id or no aws_secret_access_key", places("or"), name)
	}
	for _, value := range []string{keys.Access, keys.Secret, keys.Session} {
		if strings.ContainsFunc(value, unicode.IsControl) {
			return Keys{}, fmt.Errorf("profile %s: a key has more than one line", name)
		}
	}
	return keys, nil
}

// Endpoint returns the URL for S3 of the environment, else of the profile; "" without one.
func Endpoint() (string, error) {
	url := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	if _, named := profileName(); url != "" && !named {
		return unlessIgnored(url, nil), nil
	}
	all, err := readProfiles()
	if err != nil {
		return "", err
	}
	settings, err := all.settings()
	if err != nil {
		return "", err
	}
	service := nested(all.services[settings["services"]]["s3"])
	return unlessIgnored(cmp.Or(url, service["endpoint_url"], settings["endpoint_url"]), settings), nil
}

// unlessIgnored returns "" where the environment or the profile says that no endpoint of theirs counts.
func unlessIgnored(url string, settings section) string {
	ignored := cmp.Or(os.Getenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"), settings["ignore_configured_endpoint_urls"])
	if strings.EqualFold(ignored, "true") {
		return ""
	}
	return url
}

// Region returns the region of the environment, else of the profile; "" without one.
func Region() (string, error) {
	if region := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")); region != "" {
		return region, nil
	}
	all, err := readProfiles()
	if err != nil {
		return "", err
	}
	settings, err := all.settings()
	return settings["region"], err
}

// profileName returns the profile of the environment, or default, and whether the environment names it.
func profileName() (string, bool) {
	name := cmp.Or(os.Getenv("AWS_DEFAULT_PROFILE"), os.Getenv("AWS_PROFILE"))
	return cmp.Or(name, "default"), name != ""
}

// profiles are both files by profile, and the sections `[services NAME]` of the second by name.
type profiles struct{ credentials, configured, services map[string]section }

func readProfiles() (*profiles, error) {
	credentials, err := readSections(credentialsPath())
	if err != nil {
		return nil, err
	}
	sections, err := readSections(configurationPath())
	if err != nil {
		return nil, err
	}
	all := &profiles{credentials, map[string]section{}, map[string]section{}}
	for title, s := range sections {
		all.configured[nameIn(title, "profile")] = s
		all.services[nameIn(title, "services")] = s
	}
	if s, found := sections["default"]; found {
		all.configured["default"] = s
	}
	return all, nil
}

// settings returns the settings of the profile; those beside its credentials win. An error where the environment names none.
func (p *profiles) settings() (section, error) {
	name, named := profileName()
	all, names := section{}, []string{}
	for _, file := range []map[string]section{p.configured, p.credentials} {
		maps.Copy(all, file[name])
		for title := range file {
			if title != "" {
				names = append(names, title)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if named && !slices.Contains(names, name) {
		const shown = 10
		more := ""
		if len(names) > shown {
			names, more = names[:shown], " ..."
		}
		return nil, fmt.Errorf("%s: no profile %s; there are: %s%s", places("and"), name, cmp.Or(strings.Join(names, ", "), "none"), more)
	}
	return all, nil
}

// nameIn returns NAME of the section "profile NAME", which may be quoted; "" for another kind of section.
func nameIn(title, kind string) string {
	first, name, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(title), "\t", " "), " ")
	name = strings.TrimSpace(name)
	if first != kind {
		return ""
	}
	for _, quote := range []string{`"`, `'`} {
		if inside, found := strings.CutPrefix(name, quote); found {
			inside, found = strings.CutSuffix(inside, quote)
			if !found {
				return ""
			}
			return inside
		}
	}
	if strings.ContainsAny(name, " \"'") {
		return ""
	}
	return name
}

// nested returns the indented lines `key = value` of a value.
func nested(text string) section {
	pairs := section{}
	for _, line := range strings.Split(text, "\n") {
		if key, value, found := strings.Cut(line, "="); found {
			pairs[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return pairs
}
