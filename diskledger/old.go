package diskledger

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// This file reads logs of format version 1. Nothing writes them any more. A record there is the JSON of a group of changes,
// which [logledger.DecodeEntry] reads, and has no index: the first one after the checkpoint counts as entry 1.

// isOld reports whether the file has format version 1.
func (s *scanner) isOld() bool { return s.header.Version == 1 }

// readOld checks a record of version 1. Its changes must continue the changes before it without a gap.
func (s *scanner) readOld(text []byte) error {
	if bytes.HasPrefix(text, []byte(`{"closed":`)) {
		var last struct{ Closed orbit.Revision }
		if err := json.Unmarshal(text, &last); err != nil || last.Closed != s.revision {
			return s.corrupt(s.at, fmt.Sprintf("the record that closes the log says revision %d; the last change has %d", last.Closed, s.revision))
		}
		s.closed = true
		return nil
	}
	e, err := logledger.DecodeEntry(text)
	if err != nil {
		return placed(s.path, s.at, err)
	}
	if s.revision, err = e.Continue(s.revision); err != nil {
		return placed(s.path, s.at, err)
	}
	s.last++
	return nil
}

// laterOld is later for version 1. A record there is text in JSON, which never contains the bytes 1 and 2. So a record can
// begin only where such a byte, the end of a header, stands before a brace. A record counts only if its revision is newer
// than that of the last record that was read, because the disk may show old contents of a file that was removed.
func (s *scanner) laterOld(rest []byte) int {
	first := 0 // where the torn or damaged record begins; the end of a block is skipped if it is too short for a header
	if room := frameBlock - s.end%frameBlock; room < frameHeader {
		first = int(room)
	}
	for i := first + 1; i+frameHeader < len(rest); i++ {
		kind := rest[i+frameHeader-1]
		if (kind == 1 || kind == 2) && rest[i+frameHeader] == '{' && s.isNewer(s.first(rest, i)) {
			return i
		}
	}
	return -1
}

// isNewer reports whether a record begins with a change after the last revision, or closes a ledger at or after it.
func (s *scanner) isNewer(text []byte) bool {
	text = text[:min(len(text), 40)]
	var at orbit.Revision
	if n, _ := fmt.Sscanf(string(text), `{"revision":%d`, &at); n == 1 {
		return at > s.revision
	}
	n, _ := fmt.Sscanf(string(text), `{"closed":%d`, &at)
	return n == 1 && at >= s.revision
}
