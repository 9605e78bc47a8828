package lease

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// Term is the time for which one holder has a lease, from Acquire until it is over. Its epoch is the revision of the
// commit that began it. The epochs of a lease only rise, even if its row is deleted and made again, so no epoch occurs
// twice.
type Term struct {
	// Name is the name of the lease, such as the id of a node.
	Name string
	// Holder is the name that the holder gave to [Keeper.Acquire].
	Holder string
	// Epoch identifies the term: the holder's reports carry it, and a MarkAt bet on the term names it as its revision.
	Epoch orbit.Revision
}

// row is the record of a lease in the ledger: the value of its mark.
//
//	1 live <holder>           the term whose epoch is the revision of the mark
//	2 live <token> <holder>   the same, with the token of its refreshes in Keeper.Refreshes
//	1 over <time> <holder>    it has ended; the time is in nanoseconds since 1970
//	1 kept <time> <holder>    the same; the node was lost, and another client had cordoned it before
//
// Any other value is corrupt. Such a lease is not held and cannot be acquired until the mark has been deleted.
type row struct {
	live   bool
	holder string
	token  string
	ended  time.Time
	kept   bool
}

const (
	liveRow   = "1 live "
	sharedRow = "2 live "
	overRow   = "1 over "
	keptRow   = "1 kept "
)

// String returns the value of the mark.
func (r row) String() string {
	switch {
	case r.live && r.token != "":
		return sharedRow + r.token + " " + r.holder
	case r.live:
		return liveRow + r.holder
	case r.kept:
		return keptRow + strconv.FormatInt(r.ended.UnixNano(), 10) + " " + r.holder
	}
	return overRow + strconv.FormatInt(r.ended.UnixNano(), 10) + " " + r.holder
}

// parseRow reads what String returns, and nothing else.
func parseRow(value string) (row, error) {
	if holder, ok := strings.CutPrefix(value, liveRow); ok && holder != "" {
		return row{live: true, holder: holder}, nil
	}
	if rest, ok := strings.CutPrefix(value, sharedRow); ok {
		if token, holder, _ := strings.Cut(rest, " "); token != "" && holder != "" {
			return row{live: true, holder: holder, token: token}, nil
		}
	}
	for _, kind := range []string{overRow, keptRow} {
		rest, ok := strings.CutPrefix(value, kind)
		at, holder, _ := strings.Cut(rest, " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		if r := (row{holder: holder, ended: time.Unix(0, ns), kept: kind == keptRow}); ok && err == nil && holder != "" && r.String() == value {
			return r, nil
		}
	}
	return row{}, fmt.Errorf("value %.64q is not a lease; delete the mark once no holder can be alive", value)
}
