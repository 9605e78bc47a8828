package orbit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// steady is a pace without chance in it.
func steady(b Backoff) *pace {
	b.Jitter = -1
	return &pace{Backoff: b.withDefaults(), rng: newRand()}
}

func waits(p *pace, n int) []time.Duration {
	out := make([]time.Duration, n)
	for i := range out {
		out[i] = p.next()
	}
	return out
}

const ms = time.Millisecond

// Initial first, then Factor times as long each time, up to Max and never beyond; reset starts over. The
// zero value has the documented numbers.
func TestBackoffGrowsAndResets(t *testing.T) {
	p := steady(Backoff{})
	assert.Equal(t, []time.Duration{10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms, 640 * ms, 1000 * ms, 1000 * ms}, waits(p, 9))
	p.reset()
	assert.Equal(t, []time.Duration{10 * ms, 20 * ms}, waits(p, 2))
	p = steady(Backoff{Initial: 3 * ms, Factor: 1.5, Max: 6 * ms})
	assert.Equal(t, []time.Duration{3 * ms, 4500 * time.Microsecond, 6 * ms, 6 * ms}, waits(p, 4))
	p = steady(Backoff{Initial: 5 * time.Second}) // Max is below: Initial wins
	assert.Equal(t, []time.Duration{5 * time.Second, 5 * time.Second}, waits(p, 2))
	assert.Equal(t, 0.2, Backoff{}.withDefaults().Jitter)
}

// A wait is shortened by chance, by less than its jitter; chance does not change how the base grows. No
// factor, however large, wraps around.
func TestBackoffJitterStaysInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Initial: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
			Max:     time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "max")),
			Factor:  rapid.Float64Range(1, math.MaxFloat64).Draw(t, "factor"),
			Jitter:  rapid.Float64Range(0.001, 1).Draw(t, "jitter"),
		}
		require.Empty(t, b.faults())
		jittered, exact := &pace{Backoff: b.withDefaults(), rng: newRand()}, steady(b)
		for range 20 {
			got, base := jittered.next(), exact.next()
			low := base - time.Duration(b.Jitter*float64(base)) - 1 // rounding
			assert.LessOrEqual(t, got, base)
			assert.GreaterOrEqual(t, got, max(low, 0))
			assert.LessOrEqual(t, base, jittered.Max)
		}
	})
}

// Jitter is there to take engines apart, so it must differ from wait to wait and from engine to engine.
func TestBackoffJitterDiffers(t *testing.T) {
	a := pace{Backoff: Backoff{Factor: 1}.withDefaults(), rng: newRand()}
	b := pace{Backoff: Backoff{Factor: 1}.withDefaults(), rng: newRand()}
	assert.NotEqual(t, waits(&a, 8), waits(&b, 8))
	assert.NotEqual(t, a.next(), a.next())
}

// Every fault of the fields is named, by Run and by Pass alike, and nothing is started.
func TestEngineNamesAllFaults(t *testing.T) {
	nan := math.NaN()
	for _, b := range []Backoff{{Initial: -1}, {Max: -1}, {Factor: 0.5}, {Factor: nan}, {Factor: math.Inf(1)}, {Jitter: nan}, {Jitter: 1.5}} {
		e := Engine{Name: "odd", Backoff: b, MaxPlan: -1}
		err := e.Run(t.Context())
		require.ErrorIs(t, err, ErrInvalid, "%+v", b)
		for _, word := range []string{`"odd"`, "Ledger is nil", "Navigator is nil", "MaxPlan", "Backoff"} {
			require.ErrorContains(t, err, word)
		}
		round := e.Pass(t.Context())
		require.Equal(t, []error{err}, round.Errors)
		require.Zero(t, round.View)
	}
}
