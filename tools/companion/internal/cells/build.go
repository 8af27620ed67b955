package cells

import (
	"cmp"
	"encoding/binary"
	"slices"

	"cbt-plugins/companion/internal/aggregates"
)

// Builder makes frames of stores. The frame does not depend on how the rows were spread over the stores, or in which order
// they came. The stores together hold at most 1<<16 cells.
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

// place is where a cell of a store goes to
type place struct {
	block, op, endpoint, size int64
	from                      *cell
	store, cell               int
}

func order(a, b place) int {
	return cmp.Or(cmp.Compare(a.block, b.block), cmp.Compare(a.op, b.op), cmp.Compare(a.endpoint, b.endpoint),
		cmp.Compare(a.size, b.size))
}

// Build makes a frame of what the stores hold, all of it of one source.
func (b *Builder) Build(source aggregates.Source, stores ...*Store) *aggregates.Frame {
	f := aggregates.NewFrame(aggregates.KindCounts, stores[0].block, []aggregates.Source{source})
	var ops, endpoints [][]string
	for _, s := range stores {
		ops, endpoints = append(ops, s.ops.all), append(endpoints, s.endpoints.all)
	}
	var opNumber, endpointNumber map[string]int
	f.Ops, opNumber = union(ops...)
	f.Endpoints, endpointNumber = union(endpoints...)
	opOf, endpointOf := make([][]int64, len(stores)), make([][]int64, len(stores))
	places, cellOf := []place{}, make([][]uint32, len(stores))
	for i, s := range stores {
		opOf[i], endpointOf[i] = translate(s.ops.all, opNumber), translate(s.endpoints.all, endpointNumber)
		cellOf[i] = make([]uint32, len(s.cells))
		for k := range s.cells {
			c := &s.cells[k]
			op, endpoint := opOf[i][c.key>>21&0x7f], endpointOf[i][c.key>>8&0x1fff]
			places = append(places, place{c.block, op, endpoint, int64(c.key >> 1 & 0x7f), c, i, k})
		}
	}
	slices.SortFunc(places, order)
	merged(f, places, cellOf)
	for _, table := range []struct {
		name string
		of   func(*Store) []sample
	}{
		{aggregates.TableLatency, func(s *Store) []sample { return s.latency }},
		{aggregates.TableTTFB, func(s *Store) []sample { return s.ttfb }},
		{aggregates.TableFailed, func(s *Store) []sample { return s.fail }},
	} {
		b.keys = b.keys[:0]
		for i, s := range stores {
			to := cellOf[i]
			for _, entry := range table.of(s) {
				b.keys = append(b.keys, to[entry>>16]<<16|entry&0xffff)
			}
		}
		b.histograms(f, table.name)
	}
	ticks(f, stores, opOf)
	failures(f, stores, opOf, endpointOf)
	return f
}

func (c *cell) merge(other *cell) {
	c.n += other.n
	c.failed += other.failed
	c.objects += other.objects
	c.bytes += other.bytes
	c.latency.merge(&other.latency)
	c.fail.merge(&other.fail)
	c.ttf.merge(&other.ttf)
}

// merged makes the table of cells of places in order, and notes in which row each cell of each store went.
func merged(f *aggregates.Frame, places []place, cellOf [][]uint32) {
	sums := []cell{}
	keys := []place{}
	for i, p := range places {
		if i == 0 || order(places[i-1], p) != 0 {
			sums, keys = append(sums, cell{}), append(keys, p)
		}
		sums[len(sums)-1].merge(p.from)
		cellOf[p.store][p.cell] = uint32(len(sums) - 1)
	}
	table := f.Table(aggregates.TableCounts, len(sums))
	for i, p := range keys {
		c := &sums[i]
		table.Set(i, p.block, 0, p.op, p.endpoint, p.size, c.n, c.failed, c.objects, c.bytes,
			c.latency.total, c.latency.min, c.latency.max, c.fail.total, c.fail.min, c.fail.max,
			c.ttf.n, c.ttf.total, c.ttf.min, c.ttf.max)
	}
}

// histograms makes a table of the samples in b.keys.
func (b *Builder) histograms(f *aggregates.Frame, name string) {
	b.scratch = slices.Grow(b.scratch[:0], len(b.keys))[:len(b.keys)]
	keys := sorted(b.keys, b.scratch)
	n := 0
	for i, k := range keys {
		if i == 0 || keys[i-1] != k {
			n++
		}
	}
	table := f.Table(name, n)
	cell, bucket, count := table[0].Data(), table[1].Data(), table[2].Data()
	little := binary.LittleEndian
	for i, at := 0, 0; i < len(keys); at += 4 {
		begin, k := i, keys[i]
		for i++; i < len(keys) && keys[i] == k; i++ {
		}
		little.PutUint32(cell[at:], k>>16)
		little.PutUint32(bucket[at:], k&0xffff)
		little.PutUint32(count[at:], uint32(i-begin))
	}
}
