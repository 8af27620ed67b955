package schedule

import (
	"math"
	"math/rand/v2"
	"time"
)

// Arrivals is when the requests of an open loop are due. Times are absolute: what comes late makes nothing later.
type Arrivals struct {
	rate, ramp float64
	random     *rand.Rand
	poisson    bool
	due        float64 // in requests: how many are due on average until now
}

// NewArrivals makes `rate` requests a second, after a ramp of so many seconds in which the rate rises from 0. Even ones
// come at equal distances (the first one anywhere in the first of them), others as a Poisson process. The same seed
// makes the same times.
func NewArrivals(rate, ramp float64, poisson bool, seed uint64) *Arrivals {
	random := rand.New(rand.NewPCG(seed, Mix64(seed)))
	a := &Arrivals{rate: rate, ramp: ramp, random: random, poisson: poisson}
	a.due = random.Float64() - 1 // drivers that start together do not all send together
	if poisson {
		a.due = 0
	}
	return a
}

// Next is the time of the next request, since the start.
func (a *Arrivals) Next() time.Duration {
	if a.poisson {
		a.due += a.random.ExpFloat64()
	} else {
		a.due++
	}
	seconds := a.due/a.rate + a.ramp/2
	if risen := a.rate * a.ramp / 2; a.due < risen {
		seconds = math.Sqrt(2 * a.due * a.ramp / a.rate)
	}
	if seconds > 1e9 {
		seconds = 1e9 // 31 years
	}
	return time.Duration(seconds * 1e9)
}
