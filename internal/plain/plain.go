// Package plain reads and writes JSON of a few known shapes, many times faster than the JSON package: text that needs no escapes, and
// whole numbers. What is not plain is left to that package.
package plain

import (
	"bytes"
	"encoding/hex"
	"strconv"
)

// Reader takes a text apart from its beginning. After the first part that is not as it must be it has failed.
type Reader struct {
	rest   []byte
	failed bool
}

// Read returns a reader of a text, which must not change while it is read.
func Read(text []byte) Reader { return Reader{rest: text} }

// Done reports whether everything was as it had to be, and nothing is left.
func (r *Reader) Done() bool { return !r.failed && len(r.rest) == 0 }

// Has reports whether the rest begins with a text, which it takes then.
func (r *Reader) Has(text string) bool {
	if len(r.rest) < len(text) || string(r.rest[:len(text)]) != text {
		return false
	}
	r.rest = r.rest[len(text):]
	return true
}

// Expect takes a text with which the rest must begin.
func (r *Reader) Expect(text string) { r.failed = !r.Has(text) || r.failed }

// Text takes a quoted text that is not empty and has no character that JSON writes in another way.
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

// isPlain reports whether the JSON package writes a text as it is.
func isPlain[T string | []byte](text T) bool {
	for i := range len(text) {
		if b := text[i]; b < ' ' || b > '~' || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			return false
		}
	}
	return true
}

// Number takes a whole number of at most 18 digits, so that it fits in any type, without needless zeros.
func (r *Reader) Number() (n uint64) {
	digits := 0
	for digits < len(r.rest) && r.rest[digits] >= '0' && r.rest[digits] <= '9' && digits < 19 {
		n = 10*n + uint64(r.rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 18 || digits > 1 && r.rest[0] == '0' {
		r.failed = true
	}
	r.rest = r.rest[digits:]
	return n
}

// Positive takes a Number above zero.
func (r *Reader) Positive() (n uint64) {
	n = r.Number()
	r.failed = r.failed || n == 0
	return n
}

// Hex takes a quoted text of 16 bytes in hexadecimal, in small letters, that are not all zero.
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

// Writer appends parts to a text. After the first part that is not plain it has failed.
type Writer struct {
	// Text is what was written.
	Text   []byte
	failed bool
}

// Put writes a text as it is.
func (w *Writer) Put(text string) { w.Text = append(w.Text, text...) }

// Quoted writes a text in quotes, if it is one that Reader.Text takes.
func (w *Writer) Quoted(text string) {
	w.failed = w.failed || text == "" || !isPlain(text)
	w.Text = append(append(append(w.Text, '"'), text...), '"')
}

// Number writes a number, if it is one that Reader.Positive takes.
func (w *Writer) Number(n uint64) {
	w.failed = w.failed || n == 0 || n >= 1e18
	w.Text = strconv.AppendUint(w.Text, n, 10)
}

// Hex writes 16 bytes, if they are ones that Reader.Hex takes.
func (w *Writer) Hex(id [16]byte) {
	w.failed = w.failed || id == [16]byte{}
	w.Text = append(hex.AppendEncode(append(w.Text, '"'), id[:]), '"')
}

// Plain reports whether everything was plain.
func (w *Writer) Plain() bool { return !w.failed }
