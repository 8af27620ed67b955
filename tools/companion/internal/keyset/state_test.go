package keyset

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func saved(t *testing.T) (string, *State, model) {
	random := rand.New(rand.NewPCG(3, 3))
	var whole, holes, empty Set
	whole.Fill(12345)
	m := model{}
	for range 9000 {
		number := 1 + random.Int64N(50000)
		holes.Add(number)
		m[number] = true
	}
	state := &State{Runs: 7, Spaces: []Space{
		{Name: "whole", Bucket: "b", Prefix: "w/", Seed: 5, N: 12000, Used: 12345, Live: &whole},
		{Name: "holes", Bucket: "b", Prefix: "h/", Used: 60000, Live: &holes, Unknown: []Unknown{{Number: 17, Op: "PUT", Lived: true, Silent: true}}},
		{Name: "empty", Bucket: "b", Prefix: "e/", Used: 3, Live: &empty},
	}}
	path := filepath.Join(t.TempDir(), "state")
	if err := state.Save(path); err != nil {
		t.Fatal(err)
	}
	return path, state, m
}

func TestStateComesBack(t *testing.T) {
	path, want, m := saved(t)
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Runs != want.Runs || len(got.Spaces) != len(want.Spaces) {
		t.Fatalf("%+v", got)
	}
	agree(t, got.Spaces[1].Live, m, 60000)
	for i, space := range got.Spaces {
		if space.Live.Len() != want.Spaces[i].Live.Len() {
			t.Fatalf("%s: %d objects", space.Name, space.Live.Len())
		}
		space.Live, want.Spaces[i].Live = nil, nil
		if !reflect.DeepEqual(space, want.Spaces[i]) {
			t.Fatalf("%+v, want %+v", space, want.Spaces[i])
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestTheGreatestNumberComesBack(t *testing.T) {
	t.Parallel()
	var live Set
	live.Add(Max)
	path := filepath.Join(t.TempDir(), "state")
	state := &State{Spaces: []Space{{Name: "a", Bucket: "b", Prefix: "p/", Used: Max, Live: &live}}}
	if err := state.Save(path); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(path); err != nil || got.Spaces[0].Live.Last() != Max {
		t.Fatal(err)
	}
}

func TestLoadedSetGoesOn(t *testing.T) {
	path, _, m := saved(t)
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []int64{49999, 70000, 1 << 20} {
		got.Spaces[1].Live.Add(number)
		m[number] = true
	}
	agree(t, got.Spaces[1].Live, m, 1<<21)
}

func TestDamagedStateIsRefused(t *testing.T) {
	path, _, _ := saved(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for length := 0; length < len(data); length += 1 + length/20 {
		if _, err := parse(data[:length]); err == nil {
			t.Fatalf("cut off at %d of %d and not refused", length, len(data))
		}
	}
	for at := 0; at < len(data); at += 1 + at/20 {
		data[at] ^= 4
		if _, err := parse(data); err == nil {
			t.Fatalf("byte %d changed and not refused", at)
		}
		data[at] ^= 4
	}
}

func TestWholeStateIsSmall(t *testing.T) {
	var live Set
	live.Fill(100_000_000)
	path := filepath.Join(t.TempDir(), "state")
	state := &State{Spaces: []Space{{Name: "a", Bucket: "b", Prefix: "p/", N: 100_000_000, Used: 100_000_000, Live: &live}}}
	if err := state.Save(path); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Size() > 300 {
		t.Fatalf("%d bytes", info.Size())
	}
}
