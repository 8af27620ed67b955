package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"cbt-plugins/companion/internal/aws"
	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/schedule"
)

const (
	longest    = 1e8 // seconds: three years
	largest    = 5 << 40
	mostShare  = 1e15
	mostSpaces = 10000
	mostWorks  = 40 // an aggregates file has room for 256 names of operations
)

// Parse reads a spec; its error is Errors: all that is wrong with it.
func Parse(data []byte) (*Spec, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return nil, Errors{"spec: " + err.Error()}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, Errors{"spec: there is more after its end"}
	}
	var specErrors Errors
	spec := read(&fields{values: values, errors: &specErrors})
	if len(specErrors) > 0 {
		return nil, specErrors
	}
	return spec, nil
}

func read(f *fields) *Spec {
	if version, ok := f.value("version", true); ok && f.wholeNumber("version", version, Version, 0, 1<<31) != Version {
		f.fail("version", "must be %d", Version)
	}
	s := &Spec{
		Job:          f.text("job", "", false),
		Seed:         uint64(f.integer("seed", defaultSeed, -1<<63, 1<<63-1)),
		RoundRobin:   f.choice("host_select", "weighed", "roundrobin", defaultHostSelect),
		Region:       readRegion(f),
		HostStyle:    f.choice("lookup", "path", "host", defaultLookup),
		VerifyTLS:    f.flag("verify_tls", defaultVerifyTls),
		Unsigned:     f.choice("payload", "signed", "unsigned", defaultPayload),
		Duration:     f.number("duration", 0, 0, longest),
		Objects:      f.integer("objects", 0, 0, keyset.Max),
		Ramp:         f.number("ramp", 0, 0, longest),
		Deadline:     f.number("deadline", defaultDeadline, 0.001, longest),
		Retries:      int(f.integer("retries", defaultRetries, 0, 1000)),
		Grace:        f.number("grace", defaultGrace, 0, longest),
		ListKeys:     int(f.integer("list_keys", defaultListKeys, 1, 100000)),
		PartSize:     f.integer("part_size", defaultPartSize, 1, largest),
		Compressible: f.number("compressible", defaultCompressible, 0, 1),
		Verify:       f.flag("verify", defaultVerify),
		StateIn:      f.text("state_in", "", false),
		StateOut:     f.text("state_out", "", false),
		SetsN:        f.flag("sets_n", false),
		MakeBuckets:  f.flag("make_buckets", false),
		Versioned:    f.flag("versioned", false),
		Encryption:   f.text("encryption", "", false),
		KMSKey:       f.text("kms_key", "", false),
	}
	if !slices.Contains([]string{"", "c", "s3", "kms"}, s.Encryption) {
		f.fail("encryption", "must be \"c\", \"s3\" or \"kms\", not %s", shown(s.Encryption))
	}
	if (s.Encryption == "kms") != (s.KMSKey != "") {
		f.fail("kms_key", "goes with encryption kms, which needs a key")
	}
	readHosts(f, s)
	for _, member := range f.objects("spaces") {
		s.Spaces = append(s.Spaces, readSpace(member))
	}
	if len(s.Spaces) > mostSpaces {
		f.fail("spaces", "must be at most %d", mostSpaces)
	}
	for i := range s.Spaces {
		same := func(other Space) bool { return other.Name == s.Spaces[i].Name }
		if first := slices.IndexFunc(s.Spaces, same); first < i && s.Spaces[i].Name != "" {
			f.fail(fmt.Sprintf("spaces[%d].name", i), "%q is the name of spaces[%d] too", s.Spaces[i].Name, first)
		}
		overlaps(f, s.Spaces, i)
		ofOther := func(other Space) bool { return other.Bucket == s.Spaces[i].Bucket && other.Keys != s.Spaces[i].Keys }
		if first := slices.IndexFunc(s.Spaces, ofOther); first >= 0 && first < i {
			f.fail(fmt.Sprintf("spaces[%d].keys", i), "must be the keys of spaces[%d], which has the same bucket", first)
		}
	}
	readWorks(f, s)
	ends(f, s)
	f.refuseOthers()
	return s
}

// readWorks reads `works`, or the keys of the only one, which has no name.
func readWorks(f *fields, s *Spec) {
	if _, several := f.value("works", false); !several {
		s.Works = []Work{readWork(f, s.Spaces)}
		s.Workers = s.Works[0].Workers
		return
	}
	for _, key := range []string{"workers", "rate", "arrivals", "ops"} {
		if _, given := f.value(key, false); given {
			f.fail(key, "belongs into each of the works")
		}
	}
	for i, member := range f.objects("works") {
		name := member.text("name", "", true)
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			member.fail("name", "must be of a-z, 0-9 and -, not %s", shown(name))
		}
		same := func(other Work) bool { return other.Name == name }
		if first := slices.IndexFunc(s.Works, same); first >= 0 && name != "" {
			member.fail("name", "%q is the name of works[%d] too", name, first)
		}
		work := readWork(member, s.Spaces)
		work.Name = name
		member.refuseOthers()
		if i < mostWorks {
			s.Works = append(s.Works, work)
			s.Workers += work.Workers
		} else if i == mostWorks {
			f.fail("works", "must be at most %d", mostWorks)
		}
	}
}

func readWork(f *fields, spaces []Space) Work {
	work := Work{
		Workers: int(f.integer("workers", 1, 1, 100000)),
		Rate:    f.number("rate", 0, 0, 1e7),
		Poisson: !f.choice("arrivals", "poisson", "even", defaultArrivals),
	}
	if work.Rate > 0 && work.Rate < 1e-6 {
		f.fail("rate", "must be 0 or at least 0.000001")
	}
	shares := 0.0
	for _, member := range f.objects("ops") {
		op := readOp(member, spaces)
		shares += op.Share
		work.Ops = append(work.Ops, op)
	}
	if len(work.Ops) > 0 && shares == 0 {
		f.fail("ops", "the shares must not all be 0")
	}
	if len(work.Ops) > 1000 {
		f.fail("ops", "must be at most 1000")
	}
	return work
}

// overlaps: two numbered spaces must not write each other's objects.
func overlaps(f *fields, spaces []Space, i int) {
	for j := range i {
		a, b := &spaces[i], &spaces[j]
		if a.Numbered && b.Numbered && a.Bucket == b.Bucket && a.Prefix == b.Prefix && a.Bucket != "" {
			f.fail(fmt.Sprintf("spaces[%d].prefix", i), "is the prefix of spaces[%d] in the same bucket too", j)
		}
	}
}

// readRegion returns the region; AWS's conventions are asked for it only where the spec has none.
func readRegion(f *fields) string {
	region := f.text("region", "", false)
	if _, given := f.values["region"]; given {
		return region
	}
	region, err := aws.Region()
	if err != nil {
		f.fail("region", "is missing, and %s", err)
	}
	return cmp.Or(region, defaultRegion)
}

// hostsOf returns the values of `hosts`; AWS's conventions are asked for the only one where the spec has none.
func hostsOf(f *fields) []any {
	hosts := f.list("hosts", false)
	if _, given := f.values["hosts"]; given {
		if hosts != nil && len(hosts) == 0 {
			f.fail("hosts", "must not be empty")
		}
		return hosts
	}
	endpoint, err := aws.Endpoint()
	switch {
	case err != nil:
		f.fail("hosts", "is missing, and %s", err)
	case endpoint == "":
		f.fail("hosts", "is missing, and neither AWS_ENDPOINT_URL_S3 nor a profile has an endpoint")
	default:
		return []any{endpoint}
	}
	return nil
}

func readHosts(f *fields, s *Spec) {
	scheme, hosts := "", hostsOf(f)
	for i, value := range hosts {
		key := fmt.Sprintf("hosts[%d]", i)
		text, _ := value.(string)
		host, err := url.Parse(text)
		switch {
		case strings.Contains(text, "@"): // what is before it may be a secret
			f.fail(key, "must be scheme, host and port alone, without a user")
			continue
		case err != nil || host.Host == "" || (host.Scheme != "http" && host.Scheme != "https"):
			f.fail(key, "must be http://host:port or https://host:port, not %s", shown(value))
			continue
		case strings.Trim(host.Path, "/") != "" || host.RawQuery != "" || host.Fragment != "":
			f.fail(key, "must be scheme, host and port alone, not %s", shown(value))
		case scheme != "" && scheme != host.Scheme:
			f.fail(key, "must be %s, as the other hosts are", scheme)
		}
		scheme = host.Scheme
		s.Hosts = append(s.Hosts, strings.TrimRight(text, "/"))
	}
}

func readSpace(f *fields) Space {
	space := Space{
		Name:      f.text("name", "", true),
		Bucket:    f.text("bucket", "", true),
		Prefix:    f.text("prefix", "", false),
		Numbered:  f.flag("numbered", true),
		Keys:      f.text("keys", "", false),
		Objects:   f.integer("objects", 0, 0, keyset.Max),
		Rebuild:   f.flag("rebuild", false),
		NoDeletes: f.flag("no_deletes", false),
		Limit:     f.integer("limit", 0, 0, 1<<32),
		Exclude:   f.text("exclude", "", false),
	}
	for i, value := range f.list("sizes", space.Numbered) {
		space.Sizes = append(space.Sizes, readSize(f, fmt.Sprintf("sizes[%d]", i), value))
	}
	if len(space.Sizes) > 1000 {
		f.fail("sizes", "must be at most 1000 ranges")
	} else if total(space.Sizes) == 0 && len(space.Sizes) > 0 {
		f.fail("sizes", "the shares must not all be 0")
	}
	if strings.Trim(space.Keys, "0123456789") != "" {
		f.fail("keys", "must be a number as text, not %s", shown(space.Keys))
	}
	if space.NoDeletes && !space.Rebuild {
		f.fail("no_deletes", "goes with rebuild")
	}
	if !space.Numbered && space.Rebuild {
		f.fail("rebuild", "is for numbered spaces")
	}
	if space.Numbered && space.Limit != 0 {
		f.fail("limit", "is for spaces that are not numbered")
	}
	if space.Numbered && space.Exclude != "" {
		f.fail("exclude", "is for spaces that are not numbered")
	}
	if len(space.Prefix) > 900 {
		f.fail("prefix", "must leave room for the number: at most 900 bytes")
	}
	f.refuseOthers()
	return space
}

func total(ranges []schedule.SizeRange) float64 {
	sum := 0.0
	for _, sizeRange := range ranges {
		sum += sizeRange.Share
	}
	return sum
}

func readSize(f *fields, key string, value any) schedule.SizeRange {
	list, ok := value.([]any)
	if !ok || len(list) != 3 {
		f.fail(key, "must be [smallest, largest, share], not %s", shown(value))
		return schedule.SizeRange{Share: 1}
	}
	numbers := &fields{path: f.path + key, values: map[string]any{"[2]": list[2]}, errors: f.errors}
	size := schedule.SizeRange{
		Low:   numbers.wholeNumber("[0]", list[0], 0, 0, largest),
		High:  numbers.wholeNumber("[1]", list[1], largest, 0, largest),
		Share: numbers.number("[2]", 1, 0, mostShare),
	}
	if size.High < size.Low {
		f.fail(key, "the smallest is larger than the largest")
	}
	return size
}

func readOp(f *fields, spaces []Space) Op {
	name := f.text("op", "", true)
	op := Op{
		Op:     s3.Op(name),
		Share:  f.number("share", 1, 0, mostShare),
		Absent: f.flag("absent", false),
	}
	if name != "" && !slices.Contains(s3.Ops[:], op.Op) {
		f.fail("op", "%q is not one of %s", name, strings.ReplaceAll(strings.Trim(fmt.Sprint(s3.Ops), "[]"), " ", ", "))
	}
	usual := "live"
	if op.Writes() {
		usual = "new"
	}
	text := f.text("select", usual, false)
	var wrong string
	op.Select, wrong = parseSelect(text)
	switch {
	case wrong != "":
		f.fail("select", "%q: it %s", text, wrong)
	case op.Writes() && op.Select.How == Live:
		f.fail("select", "%s takes new or a range", name)
	case !op.Writes() && op.Select.How == New:
		f.fail("select", "new is for PUT and MULTIPART")
	case op.Op == s3.List && op.Select.How != Live:
		f.fail("select", "LIST takes live")
	case op.Absent && op.Op != s3.Delete:
		f.fail("absent", "is for DELETE")
	case op.Absent && op.Select.How == Live:
		f.fail("absent", "needs a range")
	}
	for i, value := range f.list("spaces", true) {
		key := fmt.Sprintf("spaces[%d]", i)
		at := slices.IndexFunc(spaces, func(space Space) bool { return value == space.Name })
		switch {
		case at < 0:
			f.fail(key, "%s is not the name of a space", shown(value))
			continue
		case slices.Contains(op.Spaces, at):
			f.fail(key, "%s is there twice", shown(value))
		case !spaces[at].Numbered && (op.Writes() || op.Op == s3.Delete):
			f.fail(key, "%s is not numbered: it is read only", shown(value))
		}
		op.Spaces = append(op.Spaces, at)
	}
	f.refuseOthers()
	return op
}

// ends: a run must know when it is over.
func ends(f *fields, s *Spec) {
	writes, once, some := false, true, false
	for _, work := range s.Works {
		for i := range work.Ops {
			op := &work.Ops[i]
			writes, some = writes || op.Writes() && op.Share > 0, true
			once = once && (op.Select.How == Once || op.Share == 0)
		}
	}
	if s.Objects > 0 && !writes && some {
		f.fail("objects", "nothing writes: the run would never have so many")
	}
	if s.Duration == 0 && s.Objects == 0 && !once {
		f.fail("duration", "the run would never end: give duration or objects, or select each object once with r(a,b)")
	}
	if s.SetsN && !writes && some {
		f.fail("sets_n", "nothing writes")
	}
}
