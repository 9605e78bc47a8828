package orbit

import (
	"fmt"
	"log/slog"
	"time"
)

// Round is what one pass of an engine did.
type Round struct {
	Engine     string
	View       Revision // what it planned on
	Pending    int      // capsules handed to the navigator
	Proposed   int      // proposals sent
	Committed  int      // proposals committed
	Conflicts  int      // lost to another commit; planned again next pass
	Infeasible int      // never held in their own view; if this rises pass after pass the navigator is wrong
	Invalid    int      // malformed
	Unknown    int      // outcome not known; sent again next pass
	Failed     int      // the ledger was unavailable, or failed otherwise
	Unplaced   []Unplaced
	Parked     int // classes put aside because they fit nowhere
	Notes      []slog.Attr
	Errors     []error // all that went wrong but conflicts, at most 16 of a kind

	Viewing, Planning, Proposing time.Duration // time per stage
}

// maxErrors is how many errors of a kind a round keeps; the counts count them all.
const maxErrors = 16

// String sums the round up in a line.
func (r Round) String() string {
	return fmt.Sprintf("%s at %d: %d pending, %d proposed, %d committed, %d conflicts, %d infeasible, %d errors, %d unplaced, %d classes parked",
		r.Engine, r.View, r.Pending, r.Proposed, r.Committed, r.Conflicts, r.Infeasible, r.Invalid+r.Unknown+r.Failed, len(r.Unplaced), r.Parked)
}

// active reports whether there was anything to do.
func (r *Round) active() bool { return r.Pending > 0 || r.Proposed > 0 }
