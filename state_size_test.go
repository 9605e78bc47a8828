package orbit

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A spec is too large if it fits on no empty node of those that suit it, and the text names all that the largest of them
// lacks.
func TestTooLarge(t *testing.T) {
	amount := rapid.Int64Range(0, 4)
	rapid.Check(t, func(t *rapid.T) {
		l := &MemoryLedger{}
		nodes := rapid.IntRange(0, 4).Draw(t, "nodes")
		for i := range nodes {
			n := Node{ID: NodeID(rune('a' + i)), Capacity: Resources{amount.Draw(t, "cpu"), amount.Draw(t, "memory")}}
			if n.Devices.Count = rapid.IntRange(0, 2).Draw(t, "devices"); n.Devices.Count > 0 {
				n.Devices.Model = rapid.SampledFrom([]string{"m", "n"}).Draw(t, "model")
			}
			if x := amount.Draw(t, "extra"); x > 0 {
				n.Extras = []Extra{{Name: "ip", Amount: x}}
			}
			if rapid.Bool().Draw(t, "zone") {
				n.Labels = map[string]string{"zone": "z"}
			}
			n.Cordon(rapid.IntRange(0, 3).Draw(t, "cordoned") == 0)
			_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{PutNode{Node: n}}})
			require.NoError(t, err)
		}
		spec := &Spec{Envelope: Envelope{Reservation: Resources{amount.Draw(t, "wants cpu"), amount.Draw(t, "wants memory")}}}
		if count := rapid.IntRange(0, 2).Draw(t, "wants devices"); count > 0 {
			spec.Devices = DeviceRequest{Count: count, Milli: 1, Models: []string{"m"}}
		}
		if x := amount.Draw(t, "wants extra"); x > 0 {
			spec.Extras = []Extra{{Name: "ip", Amount: x}}
		}
		if rapid.Bool().Draw(t, "requires") {
			spec.Require = []Predicate{{Key: "zone", Op: "Exists"}}
		}
		s, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		suited, takes := 0, false
		for n := range s.Nodes() {
			_, inZone := n.Node.Labels["zone"]
			if spec.Require != nil && !inZone || spec.Devices.Count > 0 && n.Node.Devices.Model != "m" {
				continue
			}
			suited++
			fits := spec.Envelope.Reservation.Within(n.Node.Capacity) && n.Node.Devices.Count >= spec.Devices.Count
			takes = takes || fits && (spec.Extras == nil || s.ExtraFree(n, "ip") >= spec.Extras[0].Amount)
		}
		text := s.TooLarge(spec)
		require.Equal(t, suited > 0 && !takes, text != "")
		require.Equal(t, text != "" && suited < nodes, strings.Contains(text, "that suits it"))
	})
}

// What the largest node has reads well in each unit.
func TestTooLargeReadsWell(t *testing.T) {
	var names dimensionNames
	for want, of := range map[string]struct {
		d      int
		amount int64
	}{
		"72 cores": {CPU, 72000}, "1 core": {CPU, 1000}, "0.25 cores": {CPU, 250}, "0 cores": {CPU, 0},
		"64 GiB of memory": {Memory, 64 << 30}, "1.5 MiB of memory": {Memory, 3 << 19}, "0 bytes of memory": {Memory, 0}, "1 byte of disk": {Disk, 1},
		"1023 bytes of disk": {Disk, 1023}, "1 KiB of disk": {Disk, 1024}, "7.99 EiB of memory": {Memory, math.MaxInt64}, "3 of slots": {Slots, 3},
	} {
		require.Equal(t, want, names.quantity(of.d, of.amount, false))
	}
	require.Equal(t, "8 EiB of memory", names.quantity(Memory, math.MaxInt64, true))
	require.Equal(t, "1.51 GiB of disk", names.quantity(Disk, 3<<29+1, true), "half a GiB and a byte less are not enough")
	require.Equal(t, "1.5 GiB of disk", names.quantity(Disk, 3<<29+1, false))
	l := &MemoryLedger{}
	_, err := l.Propose(t.Context(), Proposal{Do: []Commitment{
		PutNode{Node: Node{ID: "a", Capacity: Resources{CPU: 72000, Memory: 1 << 30}}},
		PutNode{Node: Node{ID: "b", Capacity: Resources{CPU: 8000, Memory: 64 << 30}, Labels: map[string]string{"zone": "z"}}},
	}})
	require.NoError(t, err)
	s, err := l.Snapshot(t.Context())
	require.NoError(t, err)
	for want, spec := range map[string]*Spec{
		"no node is that large: the largest has 72 cores":                    {Envelope: Envelope{Reservation: Resources{CPU: 73000}}},
		"no node is that large: the largest have 72 cores, 64 GiB of memory": {Envelope: Envelope{Reservation: Resources{CPU: 73000, Memory: 65 << 30}}},
		"no node is that large in all that it asks for at once":              {Envelope: Envelope{Reservation: Resources{CPU: 9000, Memory: 2 << 30}}},
		"no node that suits it is that large: the largest has 8 cores":       {Envelope: Envelope{Reservation: Resources{CPU: 9000}}, Require: []Predicate{{Key: "zone", Op: "Exists"}}},
		"no node is that large: the largest has 0 of \"ip\"":                 {Extras: []Extra{{Name: "ip", Amount: 1}}},
		"": {Envelope: Envelope{Reservation: Resources{CPU: 72000}}},
	} {
		require.Equal(t, want, s.TooLarge(spec))
	}
}
