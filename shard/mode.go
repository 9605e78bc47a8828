package shard

import "strconv"

// Mode says what groups of nodes mean to a scheduler. It is a setting: any population can run in any mode, and change
// it by starting again.
type Mode uint8

const (
	// Strict shows a scheduler its own group only. No two schedulers ever get in each other's way, and none finds
	// room that is in another group.
	Strict Mode = iota
	// Soft prefers the own group; what does not fit there is placed anywhere else, optimistically.
	Soft
	// Shared does without groups. Every scheduler sees all nodes; who commits first has the room.
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
