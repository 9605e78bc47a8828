package lease

import "slices"

// This file tells readers, such as telemetry.Board, which leases have changed.

// Changed ends the leases whose time has run out, and returns the names of the leases that have begun, run out, ended
// or vanished since a cursor that an earlier call returned. A name may occur twice. All means that any lease may have
// changed: the cursor is 0 or too old. Changed does not call the ledger.
func (k *Keeper) Changed(cursor uint64) (names []string, next uint64, all bool) {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire(k.clock())
	names, next, all = k.changes.since(cursor)
	return slices.Clone(names), next, all
}

// Known reports whether this process has a record of the lease: the lease has a row, or its row was deleted while the
// term was live and the end is still to be committed.
func (k *Keeper) Known(name string) bool {
	k.init()
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leases[name] != nil
}

// changeLog is a window on an endless list of names.
type changeLog struct {
	window []string
	base   uint64 // how many names have left the window
}

// changeWindow is the length at which the older half of the window is forgotten.
const changeWindow = 1 << 13

// add appends a name.
func (c *changeLog) add(name string) {
	if len(c.window) >= changeWindow {
		half := len(c.window) / 2
		c.base += uint64(half)
		c.window = slices.Delete(c.window, 0, half)
	}
	c.window = append(c.window, name)
}

// since returns what was added after a cursor, or all if the window does not reach back that far. The names are good
// until the next add.
func (c *changeLog) since(cursor uint64) (names []string, next uint64, all bool) {
	next = c.base + uint64(len(c.window))
	if cursor < c.base || cursor > next {
		return nil, next, true
	}
	return c.window[cursor-c.base:], next, false
}
