package orbit

import (
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// anyQuantity draws small numbers, any numbers, and those where sums wrap.
func anyQuantity() *rapid.Generator[int64] {
	return rapid.OneOf(
		rapid.Int64Range(-3, 3),
		rapid.Int64(),
		rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MinInt64 + 1, math.MaxInt64/2 + 1, math.MinInt64 / 2}),
	)
}

func anyResources(t *rapid.T, name string) (r Resources) {
	for d := range r {
		r[d] = anyQuantity().Draw(t, name)
	}
	return r
}

// exact computes op in every dimension without bounds, and whether all of it can be represented.
func exact(a, b Resources, op func(z, x, y *big.Int) *big.Int) (out Resources, ok bool) {
	ok = true
	for d := range a {
		z := op(new(big.Int), big.NewInt(a[d]), big.NewInt(b[d]))
		ok = ok && z.IsInt64()
		out[d] = z.Int64()
	}
	return out, ok
}

// TestResourcesArithmetic: Add and Sub say exactly when a result cannot be represented, and are right
// otherwise. SCENARIOS 11 (I14).
func TestResourcesArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyResources(t, "a"), anyResources(t, "b")
		for name, c := range map[string]struct {
			got func() (Resources, bool)
			op  func(z, x, y *big.Int) *big.Int
		}{
			"Add": {func() (Resources, bool) { return a.Add(b) }, (*big.Int).Add},
			"Sub": {func() (Resources, bool) { return a.Sub(b) }, (*big.Int).Sub},
		} {
			want, fits := exact(a, b, c.op)
			got, ok := c.got()
			if ok != fits || ok && got != want {
				t.Fatalf("%v.%s(%v) = %v, %v; want %v, %v", a, name, b, got, ok, want, fits)
			}
		}
	})
}

// TestResourcesWithin: every dimension counts, and comparing never subtracts.
func TestResourcesWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyResources(t, "a"), anyResources(t, "b")
		want := true
		for d := range a {
			want = want && a[d] <= b[d]
		}
		require.Equal(t, want, a.Within(b))
		require.True(t, a.Within(a))
	})
}

// TestHasRoomNeverWraps: fit is compared by subtraction on values that are not negative. SCENARIOS 11 (I14).
func TestHasRoomNeverWraps(t *testing.T) {
	amount := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, math.MaxInt64), rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1}))
	rapid.Check(t, func(t *rapid.T) {
		n := NodeState{Node: &Node{}}
		var want Resources
		fits := true
		for d := range want {
			n.Node.Capacity[d], n.used[d], want[d] = amount.Draw(t, "capacity"), amount.Draw(t, "used"), amount.Draw(t, "want")
			sum := new(big.Int).Add(big.NewInt(n.used[d]), big.NewInt(want[d]))
			fits = fits && (want[d] == 0 || sum.Cmp(big.NewInt(n.Node.Capacity[d])) <= 0)
		}
		require.Equal(t, fits, n.hasRoom(&want))
		require.Equal(t, fits, n.Fits(&Spec{Envelope: Envelope{Reservation: want}}))
	})
}

func TestResourcesString(t *testing.T) {
	require.Equal(t, "nothing", Resources{}.String())
	require.Equal(t, "cpu=2000 memory=4294967296 dim7=-1", Resources{CPU: 2000, Memory: 1 << 32, 7: -1}.String())
}

// TestPickDevices: the tightest instances that are healthy and have enough, the lowest among equals, and
// exactly when the node can serve the request. SCENARIOS 14, 26 (I1).
func TestPickDevices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := NodeState{Node: &Node{Devices: Devices{Model: "A", Count: rapid.IntRange(0, MaxDevices).Draw(t, "count")}}}
		n.Node.Devices.Unhealthy = DeviceSet(rapid.Uint16().Draw(t, "faults")) & DeviceSet(1<<n.Node.Devices.Count-1)
		for i := range MaxDevices {
			n.useDevices(1<<i, rapid.SampledFrom([]int{0, 400, 500, 1000}).Draw(t, "used"))
		}
		r := DeviceRequest{Count: rapid.IntRange(1, 4).Draw(t, "want"), Milli: rapid.SampledFrom([]int{1, 500, 600, 1000}).Draw(t, "milli")}
		set, ok := n.PickDevices(&Spec{Devices: r})
		require.Equal(t, n.hasDevices(&r), ok)
		if !ok {
			require.Zero(t, set)
			return
		}
		require.Equal(t, r.Count, set.Len())
		for i := range MaxDevices {
			for j := range MaxDevices {
				if set.Has(i) {
					require.GreaterOrEqual(t, n.DeviceFree(i), r.Milli)
				}
				if set.Has(i) && !set.Has(j) && n.DeviceFree(j) >= r.Milli {
					require.True(t, n.DeviceFree(i) < n.DeviceFree(j) || n.DeviceFree(i) == n.DeviceFree(j) && i < j, "%d picked before %d", i, j)
				}
			}
		}
	})
}
