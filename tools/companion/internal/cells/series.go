package cells

import (
	"cmp"
	"maps"
	"slices"

	"cbt-plugins/companion/internal/aggregates"
)

// ticks makes the table of seconds.
func ticks(f *aggregates.Frame, stores []*Store, opOf [][]int64) {
	all := []tick{}
	for i, s := range stores {
		for _, t := range s.seconds.all {
			t.op = int(opOf[i][t.op])
			all = append(all, t)
		}
		all = append(all, whole(s.seconds.long, opOf[i])...)
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
	table := f.Table(aggregates.TableSeconds, n)
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

// whole spreads requests over the whole seconds during which they were in flight: one step per second, not per request.
func whole(long []flight, opOf []int64) []tick {
	steps := map[[2]int64]int64{} // op, second -> how many more are in flight
	for _, l := range long {
		steps[[2]int64{opOf[l.op], l.from}]++
		steps[[2]int64{opOf[l.op], l.till}]--
	}
	found, now := []tick{}, int64(0)
	keys := slices.SortedFunc(maps.Keys(steps), func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	for i, key := range keys {
		if now += steps[key]; now == 0 {
			continue
		}
		for at := key[1]; at < keys[i+1][1]; at++ {
			found = append(found, tick{second: at, op: int(key[0]), busy: now * second, crossing: now})
		}
	}
	return found
}

type failure struct {
	block, op, endpoint int64
	kind                string
	count               int64
}

// failures makes the table of errors: the most frequent kinds keep their text.
func failures(f *aggregates.Frame, stores []*Store, opOf, endpointOf [][]int64) {
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
	table := f.Table(aggregates.TableErrors, len(sums))
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b [4]int64) int { return slices.Compare(a[:], b[:]) })
	for i, key := range keys {
		table.Set(i, key[0], 0, key[1], key[2], key[3], sums[key])
	}
}
