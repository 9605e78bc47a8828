package lease

import "slices"

// This file tells readers, such as telemetry.Board, which leases have changed.

// Changed ends the leases whose time has run out. It returns the names of the leases that have begun, run out, ended or
// lost their row since an earlier call, whose next is the cursor; begin with 0. A name may occur twice. If all is true,
// any lease may have changed, because the cursor is too old; names is empty then. Changed does not call the ledger.
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

// since returns the names that were added after a cursor, or all if the window does not reach back that far. The slice
// is valid until the next add.
func (c *changeLog) since(cursor uint64) (names []string, next uint64, all bool) {
	next = c.base + uint64(len(c.window))
	if cursor < c.base || cursor > next {
		return nil, next, true
	}
	return c.window[cursor-c.base:], next, false
}
