package score

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// trial computes how much of a node's free devices typical work could use before a capsule is placed and after, for
// each choice of instances. One pass over the shapes serves all outcomes. Instances with equal free capacity give equal
// outcomes, so only one of them is tried.
type trial struct {
	model     string
	cpu, left int64 // milli-cores free before and after
	before    outcome
	after     [orbit.MaxDevices]outcome
	choices   int
	wanted    int64 // of all instances together, in milli
	asked     int64 // capsules of the typical shapes
}

func (t *trial) run(typical []Shape, node *orbit.NodeState, spec *orbit.Spec) {
	t.load(node)
	t.place(spec)
	t.judge(typical)
}

// load reads the model, the free CPU and the free devices of the node.
func (t *trial) load(node *orbit.NodeState) {
	t.model, t.cpu, t.before.free = node.Node.Devices.Model, max(freeCPU(node), 0), freeOf(node)
}

// place lists the outcomes of placing the spec. For a share it tries all instances with enough free; for any other
// request only the tightest instances, which are the default choice.
func (t *trial) place(spec *orbit.Spec) {
	t.left, t.wanted = max(t.cpu-spec.Envelope.Reservation[orbit.CPU], 0), wantedDevices(spec)
	free, want := &t.before.free, &spec.Devices
	for at := free.first(want.Milli); at+want.Count <= free.n; at = free.first(int(free.milli[at]) + 1) {
		t.after[t.choices].take(free, at, want)
		t.choices++
		if !isShare(want) {
			break
		}
	}
}

// judge adds up how much the shapes could use. Neighbouring shapes with the same device request are served together.
func (t *trial) judge(shapes []Shape) {
	t.rewind()
	if t.before.rest == 0 {
		return // no device capacity is free
	}
	for milli := 0; len(shapes) > 0; {
		want := &shapes[0].Devices
		if want.Milli < milli {
			t.rewind()
		}
		milli = want.Milli
		n, before, after := t.fitting(shapes)
		if before > 0 && want.Count > 0 {
			t.serve(want, before, after)
		}
		shapes = shapes[n:]
	}
}

// fitting returns how many shapes, from the first on, have the same device request; and for how many of their capsules
// the model and the CPU suffice before and after placing. It counts all their capsules as asked.
func (t *trial) fitting(shapes []Shape) (n int, before, after int64) {
	want := &shapes[0].Devices
	for ; n < len(shapes); n++ {
		s := &shapes[n]
		if s.Devices.Milli != want.Milli || s.Devices.Count != want.Count {
			break
		}
		t.asked += int64(s.Capsules)
		if s.CPU > t.cpu || !accepts(&s.Devices, t.model) {
			continue
		}
		before += int64(s.Capsules)
		if s.CPU <= t.left {
			after += int64(s.Capsules)
		}
	}
	return n, before, after
}

// serve adds what capsules with this device request could use: before so many of them, and after so many.
func (t *trial) serve(want *orbit.DeviceRequest, before, after int64) {
	served := t.before.serves(want)
	if t.before.usable += before * served; served == 0 {
		return // nothing serves it after placing either
	}
	for i := range t.after[:t.choices] {
		t.after[i].usable += after * t.after[i].serves(want)
	}
}

// rewind makes all outcomes ready for small requests again.
func (t *trial) rewind() {
	t.before.rewind()
	for i := range t.after[:t.choices] {
		t.after[i].rewind()
	}
}

// mends returns F(before) - F(after) for choice i, multiplied by the number of capsules asked for. F is what is free
// minus what is usable, and what is free falls by what is wanted. The result is a whole number: where nothing changes
// it is exactly 0, and no rounding error that truncation would turn into another value.
func (t *trial) mends(i int) int64 {
	return t.asked*t.wanted - (t.before.usable - t.after[i].usable)
}

// value computes the score from a result of mends.
func (t *trial) value(mends int64) float64 {
	devices := float64(mends) / float64(max(t.asked, 1)) / wholeDevice
	return -percent(1 / (1 + math.Exp(-devices)))
}

// outcome has the free capacity of a node's devices, and how much of it typical work could use.
type outcome struct {
	free freeList
	// The free capacity of the first instance taken, before it was taken.
	from int
	// How much of the free capacity each shape could use, in milli, multiplied by its number of capsules and summed.
	usable int64

	// Entries from position at on have enough for the current shape; rest is their sum, in milli.
	at   int
	rest int64
}

// take sets o.free to what is left of a list after the request has been served from a position on.
func (o *outcome) take(free *freeList, at int, want *orbit.DeviceRequest) {
	o.free = *free
	if want.Count > 0 {
		o.from = int(free.milli[at])
	}
	for i := range want.Count {
		o.free.lower(at+i, want.Milli)
	}
}

func (o *outcome) rewind() { o.at, o.rest = 0, o.free.sum() }

// serves returns the free capacity of the instances that have enough for the request; 0 if they are too few. After a
// rewind, requests must come by rising Milli, so that all of them together go through the list once.
func (o *outcome) serves(want *orbit.DeviceRequest) int64 {
	for ; o.at < o.free.n && int(o.free.milli[o.at]) < want.Milli; o.at++ {
		o.rest -= int64(o.free.milli[o.at])
	}
	if o.free.n-o.at < want.Count {
		return 0
	}
	return o.rest
}

// accepts reports whether a request accepts the model.
func accepts(r *orbit.DeviceRequest, model string) bool {
	return len(r.Models) == 0 || slices.Contains(r.Models, model)
}
