package score

import "github.com/orbitsched/orbit"

// freeList has the free capacity of each device instance of a node, in milli, least first.
type freeList struct {
	milli [orbit.MaxDevices]int16
	n     int
}

func freeOf(node *orbit.NodeState) (f freeList) {
	f.n = node.Node.Devices.Count
	for i := range f.n {
		f.milli[i] = int16(node.DeviceFree(i))
		f.lower(i, 0)
	}
	return f
}

// lower takes an amount from the entry at a position, and moves the entry forward to keep the list sorted. Entries
// after the position stay where they are.
func (f *freeList) lower(at, milli int) {
	v := f.milli[at] - int16(milli)
	for ; at > 0 && f.milli[at-1] > v; at-- {
		f.milli[at] = f.milli[at-1]
	}
	f.milli[at] = v
}

// first returns the position of the first entry with at least this much; n if there is none.
func (f *freeList) first(milli int) int {
	for i, free := range f.milli[:f.n] {
		if int(free) >= milli {
			return i
		}
	}
	return f.n
}

func (f *freeList) sum() (milli int64) {
	for _, free := range f.milli[:f.n] {
		milli += int64(free)
	}
	return milli
}
