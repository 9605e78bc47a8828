package logledger

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"

	"github.com/orbitsched/orbit"
)

// entryVersion is the version of the entries that this package writes, and the highest that it reads. The first byte of
// an entry is the lowest version that can read it, so a new version writes entries that older ones read for as long as
// it has nothing new to say.
const entryVersion = 1

// WriterID names one open [Ledger] among all that ever wrote to a log. It is random.
type WriterID [8]byte

// String returns the id in hexadecimal.
func (w WriterID) String() string { return hex.EncodeToString(w[:]) }

// Entry is one entry of a log, decoded: the changes of a group of commits, and who appended them.
type Entry struct {
	// Writer is the ledger that appended the entry; zero in logs of diskledger's format 1.
	Writer WriterID
	// Number counts the appends of the writer, so that it recognises its own entry after an answer was lost.
	Number uint64
	// Next is the ledger whose turn it is to append after this entry; zero: it stays the writer's.
	Next WriterID
	// Settled says what became of posts that the writer has judged for others, and which posts of its own have no effect
	// any more.
	Settled []Settlement
	// Changes are what was committed, in order.
	Changes []orbit.Change
}

// Settlement is the outcome of a post ([Post]).
type Settlement struct {
	// Post is the post that is settled.
	Post PostID
	// Revisions has one element for each proposal of the post: the revision at which it is committed, or 0 if the writer of
	// the entry has refused it. The poster judges a refused proposal again to learn why. It is empty if the writer of the
	// entry has withdrawn a post of its own.
	Revisions []orbit.Revision
}

// The forms of the changes in an entry.
const (
	uncompressed = iota
	compressed
)

// hasNext is the bit of an entry that has Next.
const hasNext = 1

// compressFrom is the size in bytes from which changes are compressed.
const compressFrom = 256

// maxUncompressed bounds the size in bytes of the changes of one entry when they are not compressed, so that a damaged or
// hostile entry cannot make a reader allocate more.
const maxUncompressed = 1 << 30

// mostChanges bounds the same when an entry or a post is written. It is lower, so that a store which takes no value over a
// gigabyte takes the entry, too.
const mostChanges = maxUncompressed / 2

// errTooLarge is why a group of proposals cannot be stored as one entry or one post.
var errTooLarge = fmt.Errorf("the changes of one entry have at most %d bytes; propose less at once", mostChanges)

// The encoder and decoder of zstd; both may be used by several goroutines at once. They are made when the program starts,
// because they have channels inside, and one that is first used in a bubble of testing/synctest could be used in no other.
var (
	zstdEncoder = must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2)))
	zstdDecoder = must(zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(maxUncompressed)))
	_           = zstdEncoder.EncodeAll(nil, nil) // makes what it else makes at its first use
)

// must returns the value; an error is a mistake in the options, which are constant.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// entryWriter encodes the changes of one entry as they come.
type entryWriter struct {
	encoder
	// base is the revision before the first change, n is how many changes are encoded.
	base orbit.Revision
	n    int
}

// newEntryWriter returns a writer for the changes after a revision.
func newEntryWriter(base orbit.Revision) *entryWriter {
	w := &entryWriter{base: base}
	w.last.Revision = base
	return w
}

// add encodes changes.
func (w *entryWriter) add(changes []orbit.Change) {
	for i := range changes {
		w.change(&changes[i])
	}
	w.n += len(changes)
}

// entry returns the bytes of the entry that has the changes added so far, and what else e says.
func (w *entryWriter) entry(e *Entry) ([]byte, error) {
	if w.err != nil {
		return nil, fmt.Errorf("logledger: a change cannot be written: %w", w.err)
	}
	out := encoder{buf: make([]byte, 0, 64+len(w.buf)/2)}
	out.byte(entryVersion)
	out.buf = append(out.buf, e.Writer[:]...)
	out.uint(e.Number)
	out.byte(flag(e.Next != WriterID{}, hasNext))
	if e.Next != (WriterID{}) {
		out.buf = append(out.buf, e.Next[:]...)
	}
	out.uint(uint64(len(e.Settled)))
	for _, s := range e.Settled {
		out.buf = append(out.buf, s.Post.Writer[:]...)
		out.uint(s.Post.Number)
		out.uint(uint64(len(s.Revisions)))
		for _, rev := range s.Revisions {
			out.uint(uint64(rev))
		}
	}
	out.uint(uint64(w.base))
	out.uint(uint64(w.n))
	out.buf = pack(out.buf, w.buf)
	return out.buf, nil
}

// pack appends data to out, compressed if that is worth it.
func pack(out, data []byte) []byte {
	if len(data) < compressFrom {
		return append(append(out, uncompressed), data...)
	}
	return zstdEncoder.EncodeAll(data, append(out, compressed))
}

// unpack returns the data that pack has appended.
func unpack(packed string) (string, error) {
	switch {
	case packed == "":
		return "", errMalformed
	case packed[0] == uncompressed:
		return packed[1:], nil
	case packed[0] == compressed:
		data, err := zstdDecoder.DecodeAll([]byte(packed[1:]), nil)
		return string(data), err
	}
	return "", errMalformed
}

// encodeEntry returns the bytes of an entry whose changes follow a revision.
func encodeEntry(e *Entry, base orbit.Revision) ([]byte, error) {
	w := newEntryWriter(base)
	w.add(e.Changes)
	return w.entry(e)
}

// DecodeEntry reads an entry as a [Log] returns it. The error is [ErrVersion] if a newer version wrote it, [ErrCorrupt] if
// nobody did.
func DecodeEntry(data []byte) (e Entry, err error) {
	switch {
	case len(data) == 0:
		return e, ErrCorrupt
	case data[0] == '{':
		return decodeLines(data)
	case data[0] > entryVersion:
		return e, fmt.Errorf("%w: it needs version %d, this is version %d", ErrVersion, data[0], entryVersion)
	}
	head := decoder{rest: string(data[1:])}
	copy(e.Writer[:], head.take(uint64(len(e.Writer))))
	e.Number = head.uint()
	if head.byte()&hasNext != 0 {
		copy(e.Next[:], head.take(uint64(len(e.Next))))
	}
	e.Settled = head.settled()
	base, n := orbit.Revision(head.uint()), head.uint()
	if head.err != nil {
		return Entry{}, corrupt(head.err)
	}
	text, err := unpack(head.rest)
	if err != nil {
		return Entry{}, corrupt(err)
	}
	body := decoder{rest: text}
	body.last.Revision = base
	if n > uint64(len(text)) {
		return Entry{}, ErrCorrupt
	}
	e.Changes = make([]orbit.Change, n)
	for i := range e.Changes {
		e.Changes[i] = body.change()
	}
	if body.err == nil && body.rest != "" {
		body.err = errMalformed
	}
	if body.err != nil {
		return Entry{}, corrupt(body.err)
	}
	return e, nil
}

// Continue returns the revision after an entry whose changes follow a revision. The error is [ErrCorrupt] if a change is
// missing or is there twice, or if the changes of a commit are not all there.
func (e *Entry) Continue(after orbit.Revision) (orbit.Revision, error) {
	seq := -1 // of a change at after, which is not in this entry
	for i := range e.Changes {
		c := &e.Changes[i]
		if isNext := c.Revision == after+1 && c.Seq == 0 || seq >= 0 && c.Revision == after && c.Seq == seq+1; !isNext {
			return after, fmt.Errorf("%w: change %d.%d does not follow the one before it, at revision %d", ErrCorrupt, c.Revision, c.Seq, after)
		}
		after, seq = c.Revision, c.Seq
	}
	return after, nil
}

// settled reads the settlements of an entry.
func (d *decoder) settled() (list []Settlement) {
	for range d.count() {
		var s Settlement
		copy(s.Post.Writer[:], d.take(uint64(len(s.Post.Writer))))
		s.Post.Number = d.uint()
		s.Revisions = make([]orbit.Revision, d.count())
		for i := range s.Revisions {
			s.Revisions[i] = orbit.Revision(d.uint())
		}
		list = append(list, s)
	}
	return list
}

// corrupt returns the error for an entry that cannot be decoded because of err.
func corrupt(err error) error {
	if errors.Is(err, orbit.ErrNewer) {
		return fmt.Errorf("%w: %w", ErrVersion, err)
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

// decodeLines reads a group of changes as diskledger's format 1 has them: one JSON object a line.
func decodeLines(data []byte) (e Entry, err error) {
	for line := range bytes.Lines(data) {
		var c orbit.Change
		if err := readChange(bytes.TrimSuffix(line, []byte("\n")), &c); err != nil {
			return Entry{}, corrupt(err)
		}
		e.Changes = append(e.Changes, c)
	}
	return e, nil
}

// encodePost returns the bytes of a post, of which the proposals have at most so many.
func encodePost(proposals []*orbit.Proposal, most int) ([]byte, error) {
	var e encoder
	e.uint(uint64(len(proposals)))
	for _, p := range proposals {
		e.proposal(p)
	}
	switch {
	case e.err != nil:
		return nil, e.err
	case len(e.buf) > most:
		return nil, errTooLarge
	}
	return pack([]byte{entryVersion}, e.buf), nil
}

// decodePost reads the proposals of a post.
func decodePost(data []byte) ([]orbit.Proposal, error) {
	if len(data) < 2 || data[0] > entryVersion {
		return nil, ErrVersion
	}
	text, err := unpack(string(data[1:]))
	if err != nil {
		return nil, corrupt(err)
	}
	d := decoder{rest: text}
	list := make([]orbit.Proposal, d.count())
	for i := range list {
		list[i] = d.proposal()
	}
	if d.err != nil {
		return nil, corrupt(d.err)
	}
	return list, nil
}

// newWriterID returns a random id.
func newWriterID() (w WriterID) {
	_, _ = rand.Read(w[:]) // never fails
	return w
}
