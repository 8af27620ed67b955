package aggregates

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// Builder makes frames of stores. The frame does not depend on how the rows were spread over the stores, or in which order
// they came. The stores together hold at most 1<<16 groups.
type Builder struct {
	keys, scratch []uint32
}

// names of several stores under common numbers, sorted
func union(lists ...[]string) ([]string, map[string]int) {
	all := slices.Compact(slices.Sorted(slices.Values(slices.Concat(lists...))))
	number := make(map[string]int, len(all))
	for i, text := range all {
		number[text] = i
	}
	return all, number
}

func translate(list []string, number map[string]int) []int64 {
	to := make([]int64, len(list))
	for i, text := range list {
		to[i] = int64(number[text])
	}
	return to
}

// place is where a group of a store goes to
type place struct {
	block, op, endpoint, size int64
	from                      *group
	store, group              int
}

func order(a, b place) int {
	return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.op, b.op), cmp.Compare(a.endpoint, b.endpoint),
		cmp.Compare(a.size, b.size))
}

// Build makes a frame of what the stores hold, all of it of one source.
func (b *Builder) Build(source Source, stores ...*Store) *Frame {
	f := NewFrame(KindCounts, stores[0].block, []Source{source})
	var ops, endpoints [][]string
	for _, s := range stores {
		ops, endpoints = append(ops, s.ops.all), append(endpoints, s.endpoints.all)
	}
	var opNumber, endpointNumber map[string]int
	f.Ops, opNumber = union(ops...)
	f.Endpoints, endpointNumber = union(endpoints...)
	opOf, endpointOf := make([][]int64, len(stores)), make([][]int64, len(stores))
	places, groupOf := []place{}, make([][]uint32, len(stores))
	for i, s := range stores {
		opOf[i], endpointOf[i] = translate(s.ops.all, opNumber), translate(s.endpoints.all, endpointNumber)
		groupOf[i] = make([]uint32, len(s.groups))
		for k := range s.groups {
			c := &s.groups[k]
			op, endpoint := opOf[i][c.op()], endpointOf[i][c.endpoint()]
			places = append(places, place{c.block, op, endpoint, int64(c.size()), c, i, k})
		}
	}
	slices.SortFunc(places, order)
	merged(f, places, groupOf)
	for _, table := range []struct {
		name string
		of   func(*Store) []sample
	}{
		{TableLatency, func(s *Store) []sample { return s.latency }},
		{TableTTFB, func(s *Store) []sample { return s.ttfb }},
		{TableFailed, func(s *Store) []sample { return s.fail }},
	} {
		b.keys = b.keys[:0]
		for i, s := range stores {
			to := groupOf[i]
			for _, entry := range table.of(s) {
				b.keys = append(b.keys, to[entry>>bucketWidth]<<bucketWidth|entry&bucketMask)
			}
		}
		b.histograms(f, table.name)
	}
	ticks(f, stores, opOf)
	failures(f, stores, opOf, endpointOf)
	return f
}

func (c *group) merge(other *group) {
	c.n += other.n
	c.failed += other.failed
	c.objects += other.objects
	c.bytes += other.bytes
	c.latency.merge(&other.latency)
	c.fail.merge(&other.fail)
	c.ttf.merge(&other.ttf)
}

// merged makes the table of groups of places in order, and notes in which row each group of each store went.
func merged(f *Frame, places []place, groupOf [][]uint32) {
	sums := []group{}
	keys := []place{}
	for i, p := range places {
		if i == 0 || order(places[i-1], p) != 0 {
			sums, keys = append(sums, group{}), append(keys, p)
		}
		sums[len(sums)-1].merge(p.from)
		groupOf[p.store][p.group] = uint32(len(sums) - 1)
	}
	table := f.Table(TableCounts, len(sums))
	for i, p := range keys {
		c := &sums[i]
		table.Set(i, p.block, 0, p.op, p.endpoint, p.size, c.n, c.failed, c.objects, c.bytes,
			c.latency.total, c.latency.min, c.latency.max, c.fail.total, c.fail.min, c.fail.max,
			c.ttf.n, c.ttf.total, c.ttf.min, c.ttf.max)
	}
}

// histograms makes a table of the samples in b.keys.
func (b *Builder) histograms(f *Frame, name string) {
	b.scratch = slices.Grow(b.scratch[:0], len(b.keys))[:len(b.keys)]
	keys := sorted(b.keys, b.scratch)
	n := 0
	for i, k := range keys {
		if i == 0 || keys[i-1] != k {
			n++
		}
	}
	table := f.Table(name, n)
	group, step, count := table[histogramGroup].Data(), table[histogramBucket].Data(), table[histogramCount].Data()
	little, before := binary.LittleEndian, uint16(0)
	for i, row := 0, 0; i < len(keys); row++ {
		begin, k := i, keys[i]
		for i++; i < len(keys) && keys[i] == k; i++ {
		}
		bucket := uint16(k & bucketMask)
		little.PutUint32(group[4*row:], k>>bucketWidth)
		little.PutUint16(step[2*row:], bucket-before)
		little.PutUint32(count[4*row:], uint32(i-begin))
		before = bucket
	}
}

// ticks makes the table of seconds.
func ticks(f *Frame, stores []*Store, opOf [][]int64) {
	all := []tick{}
	for i, s := range stores {
		for _, t := range s.seconds.all {
			t.op = int(opOf[i][t.op])
			all = append(all, t)
		}
		all = append(all, wholeTicks(s.seconds.long, opOf[i])...)
	}
	slices.SortFunc(all, func(a, b tick) int { return cmp.Or(cmp.Compare(a.second, b.second), cmp.Compare(a.op, b.op)) })
	n := 0
	for i := range all {
		if i > 0 && all[n-1].second == all[i].second && all[n-1].op == all[i].op {
			all[n-1].merge(&all[i])
		} else {
			all[n] = all[i]
			n++
		}
	}
	table := f.Table(TableSeconds, n)
	for i, t := range all[:n] {
		table.Set(i, t.second, 0, int64(t.op), t.n, t.failed, t.objects, t.bytes, t.total, t.max, t.first, t.last, t.busy,
			t.crossing)
	}
}

func (t *tick) merge(other *tick) {
	if other.n > 0 && (t.n == 0 || other.first < t.first) {
		t.first = other.first
	}
	t.last = max(t.last, other.last)
	t.n += other.n
	t.failed += other.failed
	t.objects += other.objects
	t.bytes += other.bytes
	t.total += other.total
	t.max = max(t.max, other.max)
	t.busy += other.busy
	t.crossing += other.crossing
}

// wholeTicks spreads requests over the whole seconds during which they were in flight: one step per second, not per request.
func wholeTicks(long []flight, opOf []int64) []tick {
	steps := map[[2]int64]int64{} // op, second -> how many more are in flight
	for _, l := range long {
		steps[[2]int64{opOf[l.op], l.from}]++
		steps[[2]int64{opOf[l.op], l.till}]--
	}
	ticks, now := []tick{}, int64(0)
	keys := slices.SortedFunc(maps.Keys(steps), func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	for i, key := range keys {
		if now += steps[key]; now == 0 {
			continue
		}
		for at := key[1]; at < keys[i+1][1]; at++ {
			ticks = append(ticks, tick{second: at, op: int(key[0]), busy: now * second, crossing: now})
		}
	}
	return ticks
}

type failure struct {
	block, op, endpoint int64
	kind                string
	count               int64
}

// failures makes the table of errors: the most frequent kinds keep their text.
func failures(f *Frame, stores []*Store, opOf, endpointOf [][]int64) {
	all, often := []failure{}, map[string]int64{}
	for i, s := range stores {
		for key, count := range s.errors {
			kind := s.messages.all[key.message]
			all = append(all, failure{key.block, opOf[i][key.op], endpointOf[i][key.endpoint], kind, count})
			often[kind] += count
		}
	}
	kinds := slices.SortedFunc(maps.Keys(often), func(a, b string) int {
		return cmp.Or(cmp.Compare(often[b], often[a]), cmp.Compare(a, b))
	})
	number := map[string]int64{}
	kinds = kinds[:min(len(kinds), mostMessages)]
	for i, kind := range kinds {
		number[kind] = int64(i)
	}
	sums := map[[4]int64]int64{}
	for _, e := range all {
		at, known := number[e.kind]
		if !known {
			if at, known = number[other]; !known {
				at = int64(len(kinds))
				number[other], kinds = at, append(kinds, other)
			}
		}
		sums[[4]int64{e.block, e.op, e.endpoint, at}] += e.count
	}
	f.Errors = append(f.Errors, kinds...)
	table := f.Table(TableErrors, len(sums))
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b [4]int64) int { return slices.Compare(a[:], b[:]) })
	for i, key := range keys {
		table.Set(i, key[0], 0, key[1], key[2], key[3], sums[key])
	}
}
