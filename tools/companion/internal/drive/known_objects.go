package drive

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"cbt-plugins/companion/internal/content"
	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/schedule"
	"cbt-plugins/companion/internal/spec"
)

// kept is what the state knows of spaces that this run does not touch, and how many runs there were.
type kept struct {
	runs   uint64
	spaces []keyset.Space
}

// openSpaces finds out which objects exist: from the state, and by listing.
func (e *engine) openSpaces() error {
	if err := e.makeBuckets(); err != nil {
		return err
	}
	state, err := e.knownState()
	if err != nil {
		return err
	}
	e.kept.runs = state.Runs
	// what the next run writes differs from what is there
	e.seed = schedule.Mix64(e.spec.Seed) + schedule.Mix64(state.Runs)
	e.generation = schedule.Mix64(e.seed)
	for i := range e.spec.Spaces {
		spaceSpec := &e.spec.Spaces[i]
		s := &space{spec: spaceSpec, unknown: map[int64]keyset.Unknown{}, live: &keyset.Set{}, seed: e.spec.Seed, versioned: e.spec.Versioned}
		e.spaces = append(e.spaces, s)
		if !spaceSpec.Numbered {
			if err := e.findNames(s); err != nil {
				return err
			}
			continue
		}
		s.flights = keyset.NewFlights(e.spec.Workers)
		at := slices.IndexFunc(state.Spaces, func(k keyset.Space) bool { return k.Name == spaceSpec.Name })
		if at >= 0 {
			if err := s.takeOver(state.Spaces[at]); err != nil {
				return err
			}
			state.Spaces = slices.Delete(state.Spaces, at, at+1)
		}
		if spaceSpec.Rebuild {
			if err := e.findNumbers(s); err != nil {
				return err
			}
		}
		s.storeCount()
		identity := spaceSpec.Name + "\x00" + spaceSpec.Bucket + "\x00" + spaceSpec.Prefix
		s.maker = content.NewMaker(s.seed, identity, e.spec.Compressible)
		s.sizes = schedule.NewSizes(spaceSpec.Sizes, nameSeed(s.seed, spaceSpec.Name))
	}
	e.kept.spaces = state.Spaces
	return nil
}

func nameSeed(seed uint64, name string) uint64 {
	for _, c := range []byte(name) {
		seed = schedule.Mix64(seed ^ uint64(c))
	}
	return seed
}

func (e *engine) knownState() (*keyset.State, error) {
	if e.spec.StateIn == "" {
		return &keyset.State{}, nil
	}
	state, err := keyset.Load(e.spec.StateIn)
	if errors.Is(err, os.ErrNotExist) && !slices.ContainsFunc(e.spec.Spaces, needsState) {
		return &keyset.State{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("state_in: %w", err)
	}
	return state, nil
}

// needsState tells whether nothing but the state says what there is.
func needsState(s spec.Space) bool { return s.Numbered && !s.Rebuild }

func (s *space) takeOver(state keyset.Space) error {
	if state.Bucket != s.spec.Bucket || state.Prefix != s.spec.Prefix {
		return fmt.Errorf("state_in: space %s was %s/%s, the spec says %s/%s",
			state.Name, state.Bucket, state.Prefix, s.spec.Bucket, s.spec.Prefix)
	}
	s.live, s.n, s.used, s.seed = state.Live, state.N, state.Used, state.Seed
	for _, unknown := range state.Unknown {
		if unknown.Number > 0 && unknown.Number <= keyset.Max {
			s.live.Remove(unknown.Number)
			unknown.Silent = false // that was an earlier run: what is seen now is what has come of it
			s.unknown[unknown.Number] = unknown
		}
	}
	s.most = len(s.unknown)
	return nil
}

// save writes what there is now, of all spaces.
func (e *engine) save() error {
	if e.spec.StateOut == "" {
		return nil
	}
	if !e.opened {
		return e.passOn()
	}
	state := &keyset.State{Runs: e.kept.runs + 1, Spaces: e.kept.spaces}
	for _, s := range e.spaces {
		if !s.numbered() {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		saved := keyset.Space{
			Name: s.spec.Name, Bucket: s.spec.Bucket, Prefix: s.spec.Prefix, Seed: s.seed, N: s.n, Used: s.used, Live: s.live,
		}
		for _, object := range s.unknown {
			saved.Unknown = append(saved.Unknown, object)
		}
		state.Spaces = append(state.Spaces, saved)
	}
	return state.Save(e.spec.StateOut)
}

// passOn is for a run that ended before it knew what there is: the state stays what it was.
func (e *engine) passOn() error {
	if e.spec.StateIn == "" {
		return nil
	}
	state, err := keyset.Load(e.spec.StateIn)
	if errors.Is(err, os.ErrNotExist) { // it was to be rebuilt
		return nil
	}
	if err != nil {
		return err
	}
	return state.Save(e.spec.StateOut)
}
