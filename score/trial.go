package score

import (
	"math"
	"slices"

	"github.com/orbitsched/orbit"
)

// trial is what typical work could use of a node's free devices before a capsule is placed, and after, for
// each choice of instances. All shapes go past all outcomes once. Instances of which as much is free come to
// the same, so that one of them is tried.
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

// place makes the choices there are: for a share all instances with room, else the tightest ones, which are
// the default choice.
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

// judge adds up what the shapes could use. Neighbours that want the same of the instances are served
// together.
func (t *trial) judge(shapes []Shape) {
	t.rewind()
	if t.before.rest == 0 {
		return // nothing that could be of use
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

// fitting returns how many shapes from the first on want the same of the instances, and of how many capsules
// the model and the CPU are right before and after. It counts all of them as asked.
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

// serve adds what capsules that want this could use: so many before, so many after.
func (t *trial) serve(want *orbit.DeviceRequest, before, after int64) {
	served := t.before.serves(want)
	if t.before.usable += before * served; served == 0 {
		return // nor anything after
	}
	for i := range t.after[:t.choices] {
		t.after[i].usable += after * t.after[i].serves(want)
	}
}

// rewind starts with small requests again.
func (t *trial) rewind() {
	t.before.rewind()
	for i := range t.after[:t.choices] {
		t.after[i].rewind()
	}
}

// mends is F(before) - F(after) for choice i, times the capsules asked for. F is what is free less what is
// usable, and what is free falls by what is wanted. In whole numbers, so that where nothing changes it is 0
// and not a rounding error that the value would be cut for.
func (t *trial) mends(i int) int64 {
	return t.asked*t.wanted - (t.before.usable - t.after[i].usable)
}

// value makes a score of it.
func (t *trial) value(mends int64) float64 {
	devices := float64(mends) / float64(max(t.asked, 1)) / wholeDevice
	return -percent(1 / (1 + math.Exp(-devices)))
}

// outcome is what is free of a node's devices, and what typical work could use of it.
type outcome struct {
	free freeList
	// What was free of the first instance taken, before it was.
	from int
	// What each shape could use of what is free, in milli, times its capsules.
	usable int64

	// Entries from place at on have enough for the shape at hand, and rest milli together.
	at   int
	rest int64
}

// take makes o what is left of a list after the request has been served from a place on.
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

// serves returns what is free of the instances that have enough for the request, 0 if they are too few. From
// a rewind on, requests must come by rising Milli: so they go through the list once together.
func (o *outcome) serves(want *orbit.DeviceRequest) int64 {
	for ; o.at < o.free.n && int(o.free.milli[o.at]) < want.Milli; o.at++ {
		o.rest -= int64(o.free.milli[o.at])
	}
	if o.free.n-o.at < want.Count {
		return 0
	}
	return o.rest
}

// accepts reports whether the request is content with the model.
func accepts(r *orbit.DeviceRequest, model string) bool {
	return len(r.Models) == 0 || slices.Contains(r.Models, model)
}
