package diskledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
)

// formatVersion is the version of the files that this package writes and reads.
const formatVersion = 1

// The kinds of files.
const (
	logKind        = "log"
	checkpointKind = "checkpoint"
)

// header is the first record of a file.
type header struct {
	// Kind is logKind or checkpointKind.
	Kind string `json:"diskledger"`
	// Version is the version of the format.
	Version int `json:"version"`
	// Number is the number in the file's name.
	Number uint64 `json:"number"`
	// Revision is the revision of the state in a checkpoint, or of the state that a log continues.
	Revision orbit.Revision `json:"revision"`
	// Previous is how many bytes of the previous log are valid; 0 in a checkpoint and in a log without a previous one.
	// The bytes after them are an unfinished write, and are not read again.
	Previous int64 `json:"previous,omitempty"`
}

// closing is the last record of a log whose ledger was closed. It shows that all records before it were written
// completely.
type closing struct {
	// Closed is the revision of the ledger when it was closed.
	Closed orbit.Revision `json:"closed"`
}

// appender writes records to a file. It hands each record to the file in one write.
type appender struct {
	file   vfs.File
	path   string
	frames *record.Writer
	// buffer has the bytes of the record that is being written, as frames has encoded it.
	buffer bytes.Buffer
}

// newAppender returns an appender to an empty file.
func newAppender(file vfs.File, path string) *appender {
	a := &appender{file: file, path: path}
	a.frames = record.NewWriter(&a.buffer)
	return a
}

// append writes one record.
func (a *appender) append(payload []byte) error {
	if _, err := a.frames.WriteRecord(payload); err != nil {
		return diskError("write", a.path, err)
	}
	n, err := a.file.Write(a.buffer.Bytes())
	if err == nil && n < a.buffer.Len() {
		err = io.ErrShortWrite
	}
	a.buffer.Reset()
	return diskError("write", a.path, err)
}

// appendJSON writes a value as one record of JSON.
func (a *appender) appendJSON(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.append(text)
}

// sync waits until all records that were written are on the disk.
func (a *appender) sync() error { return diskError("sync", a.path, a.file.SyncData()) }

// size returns how many bytes have been written.
func (a *appender) size() int64 { return a.frames.Size() }

// close closes the file.
func (a *appender) close() error { return diskError("close", a.path, a.file.Close()) }

// scanner reads the records of a file.
type scanner struct {
	file   vfs.File
	path   string
	frames *record.Reader
	header header
	// size is the size of the file, end is where the last record that was read ends.
	size, end int64
}

// errTorn means that the bytes after the last valid record are not a valid record.
var errTorn = errors.New("no valid record")

// openScanner opens a file and reads its header.
func (f *folder) openScanner(number uint64, kind, end string) (*scanner, error) {
	path := f.path(nameOf(number, end))
	file, err := f.fs.Open(path)
	if err != nil {
		return nil, diskError("open", path, err)
	}
	s := &scanner{file: file, path: path, frames: record.NewReader(file, 0)}
	if err := s.begin(number, kind); err != nil {
		_ = file.Close()
		return nil, err
	}
	return s, nil
}

// begin reads the header. A file gets its name after its header is on the disk, so there is no torn header.
func (s *scanner) begin(number uint64, kind string) error {
	info, err := s.file.Stat()
	if err != nil {
		return diskError("open", s.path, err)
	}
	s.size = info.Size()
	text, err := s.next()
	if errors.Is(err, errTorn) || errors.Is(err, io.EOF) {
		return s.corrupt(0, "the header is missing or damaged")
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &s.header); err != nil {
		return s.corrupt(0, fmt.Sprintf("the header cannot be read: %v", err))
	}
	if s.header.Version != formatVersion {
		return fmt.Errorf("diskledger: %w: %s has version %d; this package reads %d", ErrVersion, s.path, s.header.Version, formatVersion)
	}
	if s.header.Kind != kind || s.header.Number != number {
		return s.corrupt(0, fmt.Sprintf("its header says %s %d; its name says %s %d", s.header.Kind, s.header.Number, kind, number))
	}
	return nil
}

// next returns the next record. The error is io.EOF if the file ends after the last record, and errTorn if other bytes
// follow.
func (s *scanner) next() ([]byte, error) {
	stream, err := s.frames.Next()
	if errors.Is(err, io.EOF) {
		if s.end != s.size {
			return nil, errTorn
		}
		return nil, io.EOF
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(stream)
	}
	switch {
	case err == nil:
		s.end = s.frames.Offset()
		return text, nil
	case errors.Is(err, record.ErrUnexpectedEOF), errors.Is(err, record.ErrInvalidChunk), errors.Is(err, record.ErrZeroedChunk):
		return nil, errTorn
	}
	return nil, diskError("read", s.path, err)
}

// corrupt returns an error that names a place in the file.
func (s *scanner) corrupt(at int64, why string) error {
	return &CorruptError{File: s.path, Offset: at, Why: why}
}

// close closes the file.
func (s *scanner) close() error { return diskError("close", s.path, s.file.Close()) }

const (
	// frameBlock and frameHeader are the sizes, in bytes, of a block and of a header in the record format of pebble.
	// The last byte of a header is 1 for a whole record, and 2 for the first part of a record that continues in the
	// next block.
	frameBlock, frameHeader = 32 << 10, 7
)

// successor searches the bytes after the last valid record for a record that was written later, and returns the offset
// at which that record begins. A group is written only when the group before it is on the disk. So if there is a later
// record, the bytes before it were on the disk once and are damaged. If there is none, the bytes may be a part of a
// write that was never confirmed.
//
// A record is text in JSON, which never contains the bytes 1 and 2. So a record can begin only where such a byte, the
// end of a header, stands before a brace. A record counts only if its revision is newer than that of the last record
// that was read (after), because the disk may show old contents of a file that was removed.
func (s *scanner) successor(after orbit.Revision) (at int64, found bool, err error) {
	rest := make([]byte, s.size-s.end)
	if _, err := s.file.ReadAt(rest, s.end); err != nil && !errors.Is(err, io.EOF) {
		return 0, false, diskError("read", s.path, err)
	}
	first := 0 // where the torn or damaged record begins; the end of a block is skipped if it is too short for a header
	if room := frameBlock - s.end%frameBlock; room < frameHeader {
		first = int(room)
	}
	for i := first + 1; i+frameHeader < len(rest); i++ {
		if kind := rest[i+frameHeader-1]; kind != 1 && kind != 2 || rest[i+frameHeader] != '{' {
			continue
		}
		at := s.end + int64(i)
		block := min(int64(len(rest)), frameBlock-at%frameBlock+int64(i)) // no part of a record crosses the end of its block
		if stream, err := record.NewReader(bytes.NewReader(rest[i:block]), 0).Next(); err == nil && isNewer(stream, after) {
			return at, true, nil
		}
	}
	return 0, false, nil
}

// isNewer reports whether a record begins with a change that is newer than a revision, or closes a ledger at or after it.
func isNewer(stream io.Reader, after orbit.Revision) bool {
	text, _ := io.ReadAll(stream) // only the part in this block, if the record continues in the next one
	text = text[:min(len(text), 40)]
	var at orbit.Revision
	if n, _ := fmt.Sscanf(string(text), `{"revision":%d`, &at); n == 1 {
		return at > after
	}
	n, _ := fmt.Sscanf(string(text), `{"closed":%d`, &at)
	return n == 1 && at >= after
}
