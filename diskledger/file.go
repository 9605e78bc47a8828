package diskledger

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// formatVersion is the version of the files that this package writes, and the highest that it reads. It also reads files
// of version 1; see old.go.
const formatVersion = 2

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
	// Index is the index of the last entry that a checkpoint includes, or of the entry before the first one of a log.
	Index logledger.Index `json:"index,omitempty"`
	// Revision is what a file of version 1 has in place of Index: the revision of the state there.
	Revision orbit.Revision `json:"revision,omitempty"`
	// Previous is how many bytes of the previous log are valid; 0 in a checkpoint and in a log without a previous one.
	// The bytes after them are an unfinished write, and are not read again.
	Previous int64 `json:"previous,omitempty"`
	// Checkpoint is the number of the newest checkpoint when a log was begun; 0: there was none.
	Checkpoint uint64 `json:"checkpoint,omitempty"`
	// Salt is in each record of a log. It is random, so that no record of another file and no text in an entry can be taken
	// for a record of this log.
	Salt []byte `json:"salt,omitempty"`
}

// The first byte of a record of a log. It is followed by the salt and an index: of the entry, or of the last entry.
const (
	entryRecord = 'E'
	// closingRecord is the last record of a log whose ledger was closed. It shows that all records before it were written
	// completely.
	closingRecord = 'C'
)

const (
	// saltLength is the length of a salt, prefixLength is how many bytes of a record come before the entry.
	saltLength, prefixLength = 8, 1 + saltLength + 8
	// frameBlock and frameHeader are the sizes, in bytes, of a block and of a header in the record format of pebble.
	// The last byte of a header is 1 for a whole record, and 2 for the first part of a record that continues in the
	// next block.
	frameBlock, frameHeader = 32 << 10, 7
)

// appender writes records to a file. It hands each record to the file in one write.
type appender struct {
	file   vfs.File
	path   string
	frames *record.Writer
	// buffer has the bytes of the record that is being written, as frames has encoded it.
	buffer bytes.Buffer
	// salt is the salt of a log.
	salt []byte
}

// newAppender returns an appender to an empty file.
func newAppender(file vfs.File, path string) *appender {
	a := &appender{file: file, path: path}
	a.frames = record.NewWriter(&a.buffer)
	return a
}

// append writes one record, whose payload is given in parts.
func (a *appender) append(parts ...[]byte) error {
	w, err := a.frames.Next()
	for _, part := range parts {
		if err == nil {
			_, err = w.Write(part)
		}
	}
	if err = errors.Join(err, a.frames.Flush()); err != nil {
		return diskError("write", a.path, err)
	}
	n, err := a.file.Write(a.buffer.Bytes())
	if err == nil && n < a.buffer.Len() {
		err = io.ErrShortWrite
	}
	a.buffer.Reset()
	return diskError("write", a.path, err)
}

// appendIndexed writes a record of a log. It begins in a block that has room for its prefix, so that the prefix is in one
// piece: empty records fill the end of the block before.
func (a *appender) appendIndexed(kind byte, at logledger.Index, data []byte) error {
	for room := frameBlock - a.size()%frameBlock; frameHeader <= room && room < frameHeader+prefixLength; room -= frameHeader {
		if _, err := a.frames.WriteRecord(nil); err != nil {
			return diskError("write", a.path, err)
		}
	}
	prefix := append([]byte{kind}, a.salt...)
	return a.append(binary.BigEndian.AppendUint64(prefix, uint64(at)), data)
}

// appendHeader writes the header.
func (a *appender) appendHeader(h header) error {
	if h.Version = formatVersion; h.Kind == logKind {
		h.Salt = make([]byte, saltLength)
		_, _ = rand.Read(h.Salt) // never fails
	}
	a.salt = h.Salt
	text, err := json.Marshal(h)
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
	// size is the size of the file, end is where the last record that was read ends, at is where that record begins.
	size, end, at int64
	// last is the index of the last entry that was read. The caller of openScanner sets it for a log of version 1.
	last logledger.Index
	// closed says that the record that closes the log was read.
	closed bool
	// revision is that of the last change that was read, in a log of version 1.
	revision orbit.Revision
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
	h := &s.header
	switch {
	case h.Version > formatVersion:
		return fmt.Errorf("diskledger: %w: %s has format version %d; this package reads up to %d", logledger.ErrVersion, s.path, h.Version, formatVersion)
	case h.Kind != kind || h.Number != number:
		return s.corrupt(0, fmt.Sprintf("its header says %s %d; its name says %s %d", h.Kind, h.Number, kind, number))
	case h.Version < 1 || !s.isOld() && kind == logKind && len(h.Salt) != saltLength:
		return s.corrupt(0, "the header is not valid")
	}
	s.last, s.revision = h.Index, h.Revision
	return nil
}

// next returns the next record. The error is io.EOF if the file ends after the last record, and errTorn if other bytes
// follow.
func (s *scanner) next() ([]byte, error) {
	s.at = s.end
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

// entry returns the next entry in the first until bytes of a log; io.EOF: there is none. These bytes must all be valid. If
// until is negative, the log ends where an unfinished write begins.
func (s *scanner) entry(until int64) ([]byte, error) {
	for s.end != until {
		text, err := s.next()
		torn := errors.Is(err, errTorn)
		switch {
		case until < 0 && torn:
			if err := s.checkTail(); err != nil {
				return nil, err
			}
			return nil, io.EOF
		case until >= 0 && (torn || errors.Is(err, io.EOF) || s.end > until):
			return nil, s.corrupt(s.at, fmt.Sprintf("no valid record; the next log says that %d bytes were written", until))
		case err != nil:
			return nil, err
		case len(text) == 0 && !s.isOld(): // filling
		case s.closed:
			return nil, s.corrupt(s.at, "a record follows the one that closes the log")
		case s.isOld():
			if err := s.readOld(text); err != nil || !s.closed {
				return text, err
			}
		default:
			if err := s.readPrefix(text); err != nil || !s.closed {
				return text[min(prefixLength, len(text)):], err
			}
		}
	}
	return nil, io.EOF
}

// readPrefix checks the prefix of a record.
func (s *scanner) readPrefix(text []byte) error {
	if len(text) < prefixLength || !bytes.Equal(text[1:1+saltLength], s.header.Salt) {
		return s.corrupt(s.at, "the record belongs to another file")
	}
	at := logledger.Index(binary.BigEndian.Uint64(text[1+saltLength:]))
	switch {
	case text[0] == entryRecord && at == s.last+1:
		s.last++
	case text[0] == closingRecord && at == s.last && len(text) == prefixLength:
		s.closed = true
	default:
		return s.corrupt(s.at, fmt.Sprintf("a record %q with index %d follows entry %d", text[0], at, s.last))
	}
	return nil
}

// checkTail returns an error if a later record shows that the bytes after the last valid record are damaged. Otherwise
// they are taken for an unfinished write. An entry is written only when the entry before it is on the disk. So if there is
// a later record, the bytes before it were on the disk once. If there is none, they may be a part of a write that was never
// confirmed.
func (s *scanner) checkTail() error {
	rest := make([]byte, s.size-s.end)
	if _, err := s.file.ReadAt(rest, s.end); err != nil && !errors.Is(err, io.EOF) {
		return diskError("read", s.path, err)
	}
	find := s.later
	if s.isOld() {
		find = s.laterOld
	}
	if at := find(rest); at >= 0 {
		return s.corrupt(s.end, fmt.Sprintf("no valid record, but a record that was written later is at byte %d", s.end+int64(at)))
	}
	return nil
}

// later returns where in rest, the bytes after the last valid record, a record begins that was written after the entry that
// may be torn; negative: there is none.
func (s *scanner) later(rest []byte) int {
	for from := 0; ; from++ {
		found := bytes.Index(rest[from:], s.header.Salt)
		if found < 0 {
			return -1
		}
		from += found
		begin := from - 1 - frameHeader
		if begin < 0 {
			continue
		}
		text := s.first(rest, begin)
		if len(text) < prefixLength {
			continue
		}
		at := logledger.Index(binary.BigEndian.Uint64(text[1+saltLength:]))
		if text[0] == entryRecord && at > s.last+1 || text[0] == closingRecord && at > s.last {
			return begin
		}
	}
}

// first returns the valid bytes that a record which begins at an offset of rest has in its first block; nil if none begins
// there.
func (s *scanner) first(rest []byte, begin int) []byte {
	block := min(int64(len(rest)), frameBlock-(s.end+int64(begin))%frameBlock+int64(begin)) // no part of a record crosses the end of its block
	stream, err := record.NewReader(bytes.NewReader(rest[begin:block]), 0).Next()
	if err != nil {
		return nil
	}
	text, _ := io.ReadAll(stream)
	return text
}

// corrupt returns an error that names a place in the file.
func (s *scanner) corrupt(at int64, why string) error {
	return corrupt(s.path, at, why)
}

// close closes the file.
func (s *scanner) close() error { return diskError("close", s.path, s.file.Close()) }
