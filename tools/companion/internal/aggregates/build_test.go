package aggregates

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"cbt-plugins/companion/internal/rows"
)

var source = Source{Job: "j", Node: "n"}

// some rows, of a few operations, endpoints, sizes and errors
func some(n int) []rows.Row {
	chance, all := rand.New(rand.NewSource(1)), []rows.Row{}
	for i := range n {
		r := rows.Row{
			Op: []byte([]string{"GET", "PUT", "MULTIPART"}[chance.Intn(3)]), Endpoint: fmt.Appendf(nil, "http://rgw%d:7480", chance.Intn(5)),
			Thread: int64(chance.Intn(9)), Objects: 1, Bytes: int64(chance.Intn(3)) * 4096, Duration: chance.Int63n(3e9), FirstByte: -1,
			End: 1795251988e9 + int64(i)*1e6 + chance.Int63n(1e9),
		}
		if chance.Intn(10) == 0 {
			r.Err = fmt.Appendf(nil, "Get \"http://a/%d\": error %d", i, chance.Intn(3))
		} else if r.Op[0] == 'G' {
			r.FirstByte = r.Duration / 2
		}
		all = append(all, r)
	}
	return all
}

func stored(all []rows.Row) *Store {
	s := NewStore(1, 0)
	for i := range all {
		s.Add(&all[i])
	}
	return s
}

func encoded(t *testing.T, stores ...*Store) []byte {
	t.Helper()
	var b Builder
	data, err := b.Build(source, stores...).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAFrameDoesNotDependOnOrderOrStores(t *testing.T) {
	all := some(5000)
	want := encoded(t, stored(all))
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	if !bytes.Equal(want, encoded(t, stored(all[:1700]), stored(all[1700:]))) {
		t.Error("another frame of the same rows")
	}
	s := stored(all[:100])
	s.Reset()
	for i := range all {
		s.Add(&all[i])
	}
	if !bytes.Equal(want, encoded(t, s)) {
		t.Error("another frame after a reset")
	}
}

func TestLongFlights(t *testing.T) {
	s := NewStore(1, 0)
	const at = 1795251988
	s.Add(&rows.Row{Op: []byte("GET"), End: at*second + 5, Duration: 3*second + 10, FirstByte: -1})
	s.Add(&rows.Row{Op: []byte("GET"), End: at * second, Duration: 2 * second, Err: []byte("x"), FirstByte: -1})
	s.Add(&rows.Row{Op: []byte("PUT"), End: at*second + 7, Duration: 100 * 86400 * second / 10, FirstByte: -1})
	var b Builder
	f := b.Build(source, s)
	table, all, err := f.Of(TableSeconds)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for i := range all {
		if op := f.Ops[table[2].At(i)]; op == "GET" {
			got = append(got, fmt.Sprint(table[0].At(i)-at, table[3].At(i), table[4].At(i), table[11].At(i), table[12].At(i)))
		}
	}
	want := []string{"-4 0 0 5 0", "-3 0 0 1000000000 1", "-2 0 0 2000000000 1", "-1 0 0 2000000000 2", "0 1 1 5 2"}
	if !slices.Equal(got, want) {
		t.Errorf("second, n, failed, busy, crossing: %v", got)
	}
	if all-len(got) != longestFlight+1 {
		t.Errorf("ten days are spread over %d seconds", all-len(got))
	}
}

func TestRowsThatNoRequestCanBe(t *testing.T) {
	s := NewStore(1, 10*second)
	for _, r := range []rows.Row{{End: 9 * second}, {End: 20 * second, Duration: 1e15 + 1}} {
		if s.Add(&r) {
			t.Errorf("%+v was counted", r)
		}
	}
	if !s.Empty() {
		t.Error("the store is not empty")
	}
}

func TestErrorsHaveAtMostAThousandKinds(t *testing.T) {
	one, two := NewStore(1, 0), NewStore(1, 0)
	for i := range 3000 {
		for range 1 + i%2 { // odd ones are more frequent
			r := rows.Row{Op: []byte("GET"), End: second, Err: fmt.Appendf(nil, "error %d of \"object %d\"", i%1200, i), FirstByte: -1}
			[]*Store{one, two}[i%2].Add(&r)
		}
	}
	var b Builder
	f := b.Build(source, one, two)
	table, all, err := f.Of(TableErrors)
	sum := int64(0)
	for i := range all {
		sum += table[5].At(i)
	}
	if err != nil || sum != 4500 || len(f.Errors) != mostMessages+1 || f.Errors[mostMessages] != other || f.Errors[0] != "error 1 of ..." {
		t.Errorf("%v; %d errors of %d kinds, first %q", err, sum, len(f.Errors), f.Errors[0])
	}
}

func TestKindsOfErrors(t *testing.T) {
	long := strings.Repeat("ä", 300)
	for text, want := range map[string]string{
		`Put "http://a/1": dial "x`: `Put ...: dial "x`, long: long[:400], "a\xffb": "a\uFFFDb", "\"a\nb\"": "...",
	} {
		if got := messageOf(text); got != want {
			t.Errorf("%q is %q", text, got)
		}
	}
}

func TestSorted(t *testing.T) {
	for _, n := range []int{0, 1, 2, 100, 5000} {
		keys := make([]uint32, n)
		for i := range keys {
			keys[i] = rand.Uint32() >> rand.Intn(32)
		}
		want := slices.Sorted(slices.Values(keys))
		if got := sorted(keys, make([]uint32, n)); !slices.Equal(got, want) {
			t.Errorf("%d keys are not sorted", n)
		}
	}
}

func TestIndex(t *testing.T) {
	x, places := newIndex(2), map[uint64]int{}
	for range 5000 {
		key := uint64(rand.Intn(1000))<<30 | 1
		place, fresh := x.place(key)
		want, known := places[key]
		if fresh == known || known && place != want || fresh && place != len(places) {
			t.Fatalf("key %d: %d, %v", key, place, fresh)
		}
		places[key] = place
	}
}

func TestTotals(t *testing.T) {
	all := some(1000)
	all[0].Thread, all[1].Thread = 5000, 1<<40
	var whole, one, two Sums
	for i := range all {
		whole.Add(&all[i])
		[]*Sums{&one, &two}[i%2].Add(&all[i])
	}
	one.Merge(&two)
	want, err := whole.End(1, 7, source, 3, "torn").Encode()
	got, also := one.End(1, 7, source, 3, "torn").Encode()
	if err != nil || also != nil || !bytes.Equal(got, want) {
		t.Error(err, also, "other totals of the same rows")
	}
	f := one.End(1, 7, source, 3, "torn")
	if threads, n, err := f.Of(TableThreads); err != nil || n != 10 || threads[2].At(9) != all[0].End-7 {
		t.Errorf("%d threads, %v", n, err)
	}
	if total := f.Totals[0]; total.Rows != 1000 || total.Bad != 3 || *total.Torn != "torn" || total.LastEnd != whole.lastEnd-7 {
		t.Errorf("%+v", total)
	}
}

func TestFullStoresAreBuiltInTime(t *testing.T) {
	s := NewStore(1, 0)
	for i := 0; !s.Full(); i++ {
		if i > mostGroups {
			t.Fatal("never full")
		}
		s.Add(&rows.Row{Op: []byte("GET"), Endpoint: []byte("a"), End: int64(i) * second, FirstByte: -1})
	}
	if groups, n, err := new(Builder).Build(source, s).Of(TableCounts); err != nil || n != mostGroups || groups[0].At(n-1) != mostGroups-1 {
		t.Error(n, err)
	}
}
