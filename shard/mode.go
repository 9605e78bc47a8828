package shard

import "strconv"

// Mode says on which nodes a scheduler may place capsules. It is only a setting: a population changes its mode when its
// processes are restarted with another one.
type Mode uint8

const (
	// Strict lets a scheduler use the nodes of its own group only. Schedulers never conflict over a node, but none can use
	// free capacity of another group.
	Strict Mode = iota
	// Soft prefers the scheduler's own group. What does not fit there is placed on any other node, optimistically.
	Soft
	// Shared has no groups. Every scheduler plans on all nodes, and the first commit wins.
	Shared
)

var modeNames = [...]string{"strict", "soft", "shared"}

// String returns the name of the mode, as in "strict".
func (m Mode) String() string {
	if int(m) < len(modeNames) {
		return modeNames[m]
	}
	return "mode " + strconv.Itoa(int(m))
}
