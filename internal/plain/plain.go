// Package plain reads and writes JSON of a few known shapes, many times faster than encoding/json. It handles only
// texts that need no escapes, and whole numbers. Callers leave everything else to encoding/json.
package plain

import (
	"bytes"
	"encoding/hex"
	"math"
	"strconv"
)

// Reader reads a text part by part. It fails at the first part that is not as expected, and stays failed.
type Reader struct {
	rest   []byte
	failed bool
}

// Read returns a reader of a text, which must not change while it is read.
func Read(text []byte) Reader { return Reader{rest: text} }

// Done reports whether all parts were as expected, and nothing is left.
func (r *Reader) Done() bool { return !r.failed && len(r.rest) == 0 }

// Fail makes the reader fail, for a caller that expects more than the reader knows.
func (r *Reader) Fail() { r.failed = true }

// Has reports whether the rest begins with a text. If so, it consumes that text.
func (r *Reader) Has(text string) bool {
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

// Expect consumes a text with which the rest must begin.
func (r *Reader) Expect(text string) { r.failed = !r.Has(text) || r.failed }

// Text consumes and returns a quoted text. The text must not be empty, nor contain a character that JSON escapes.
func (r *Reader) Text() []byte {
	r.Expect(`"`)
	end := bytes.IndexByte(r.rest, '"')
	if end <= 0 || !isPlain(r.rest[:end]) {
		r.failed = true
		return nil
	}
	text := r.rest[:end]
	r.rest = r.rest[end+1:]
	return text
}

// isPlain reports whether encoding/json writes a text without escapes. It refuses all texts that are not printable
// ASCII.
func isPlain[T string | []byte](text T) bool {
	for i := range len(text) {
		if b := text[i]; b < ' ' || b > '~' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			return false
		}
	}
	return true
}

// Number consumes a whole number without leading zeros that fits into an int64, as instants in nanoseconds do.
func (r *Reader) Number() (n uint64) {
	digits := 0
	for digits < len(r.rest) && r.rest[digits] >= '0' && r.rest[digits] <= '9' && digits < 20 {
		n = 10*n + uint64(r.rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 19 || n > math.MaxInt64 || digits > 1 && r.rest[0] == '0' {
		r.failed = true
	}
	r.rest = r.rest[digits:]
	return n
}

// Positive consumes a Number above zero.
func (r *Reader) Positive() (n uint64) {
	n = r.Number()
	r.failed = r.failed || n == 0
	return n
}

// Hex consumes a quoted text of 16 bytes in lower case hexadecimal, which must not all be zero.
func (r *Reader) Hex() (out [16]byte) {
	text := r.Text()
	if len(text) != 2*len(out) || bytes.ContainsAny(text, "ABCDEF") {
		r.failed = true
		return out
	}
	if _, err := hex.Decode(out[:], text); err != nil || out == [16]byte{} {
		r.failed = true
	}
	return out
}

// Writer appends parts to a text. It fails at the first part that is not plain, and stays failed.
type Writer struct {
	// Text is what was written.
	Text   []byte
	failed bool
}

// Put writes a text as it is.
func (w *Writer) Put(text string) { w.Text = append(w.Text, text...) }

// Quoted writes a text in quotes. It fails if Reader.Text would not accept the text.
func (w *Writer) Quoted(text string) {
	w.failed = w.failed || text == "" || !isPlain(text)
	w.Text = append(append(append(w.Text, '"'), text...), '"')
}

// Number writes a number. It fails if Reader.Positive would not accept the number.
func (w *Writer) Number(n uint64) {
	w.failed = w.failed || n == 0 || n > math.MaxInt64
	w.Text = strconv.AppendUint(w.Text, n, 10)
}

// Hex writes 16 bytes. It fails if Reader.Hex would not accept them.
func (w *Writer) Hex(id [16]byte) {
	w.failed = w.failed || id == [16]byte{}
	w.Text = append(hex.AppendEncode(append(w.Text, '"'), id[:]), '"')
}

// Plain reports whether all parts were plain.
func (w *Writer) Plain() bool { return !w.failed }
