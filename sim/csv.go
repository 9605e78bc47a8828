package sim

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/orbitsched/orbit"
)

// InputError says where a file cannot be read and why. errors.Is finds [orbit.ErrInvalid] in it, or the error of the
// reader if reading failed.
type InputError struct {
	// File is the name of the file, as the caller gave it.
	File string
	// Line is the number of the line, from 1; 0: the file as a whole.
	Line int
	// Column is the name of the column, or several names with commas between; empty: the line as a whole.
	Column string
	// Reason says what is wrong there.
	Reason string
	// Err is the underlying error, or nil.
	Err error
}

// Error reads like `pods.csv:17: column gpu_milli: 1200 is more than 1000`.
func (e *InputError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Column != "" {
		fmt.Fprintf(&b, ": column %s", e.Column)
	}
	return b.String() + ": " + e.Reason
}

// Unwrap returns Err.
func (e *InputError) Unwrap() error { return e.Err }

// table reads a CSV file with a header, row by row. The first fault is kept, and ends the reading.
type table struct {
	file  string
	key   string         // the column that identifies a row
	at    map[string]int // column ─► its index in a row
	csv   *csv.Reader
	row   []string       // of the current line
	line  int            // of the current row
	width int            // of the header
	seen  map[string]int // key ─► line
	fault *InputError
}

// openTable returns a table whose header must have these columns, in any order and among any others. The first of them
// identifies a row.
func openTable(r io.Reader, file string, columns []string) *table {
	t := &table{file: file, key: columns[0], at: map[string]int{}, csv: csv.NewReader(r), seen: map[string]int{}}
	t.csv.FieldsPerRecord = -1 // next checks the number of fields, with a better message
	t.csv.ReuseRecord = true
	if !t.read() {
		if t.fault == nil {
			t.fail("", "is empty; want a header with %s", strings.Join(columns, ","))
		}
		return t
	}
	t.header(columns)
	return t
}

// header notes the index of each column, and reports columns that are missing or occur twice.
func (t *table) header(columns []string) {
	t.width = len(t.row)
	for i, name := range t.row {
		if _, twice := t.at[name]; twice && name != "" {
			t.fail(strings.Clone(name), "is in the header twice")
		}
		t.at[strings.Clone(name)] = i
	}
	missing := slices.DeleteFunc(slices.Clone(columns), t.has)
	if len(missing) > 0 {
		t.fail(strings.Join(missing, ", "), "missing in the header %q", strings.Join(t.row, ","))
	}
}

// has reports whether there is such a column.
func (t *table) has(column string) bool {
	_, ok := t.at[column]
	return ok
}

// next goes to the next row, whose key must be new. It reports false at the end and after a fault.
func (t *table) next() bool {
	if t.fault != nil || !t.read() {
		return false
	}
	if len(t.row) != t.width {
		t.fail("", "%d columns; the header has %d", len(t.row), t.width)
		return false
	}
	name := t.text(t.key)
	if first, ok := t.seen[name]; ok {
		t.fail(t.key, "%q is there already, on line %d", name, first)
	}
	t.seen[name] = t.line
	return t.fault == nil
}

// read reads the next record, of any length. At the end of the file it reports false and keeps no fault.
func (t *table) read() bool {
	row, err := t.csv.Read()
	t.row = row
	var syntax *csv.ParseError
	switch {
	case errors.Is(err, io.EOF):
		return false
	case errors.As(err, &syntax):
		t.line = syntax.Line
		t.fail("", "byte %d: %v", syntax.Column, syntax.Err)
	case err != nil:
		t.line++
		t.fail("", "cannot be read: %v", err)
		t.fault.Err = err // in place of ErrInvalid, because the text of the file is not at fault
	default:
		t.line, _ = t.csv.FieldPos(0)
	}
	return err == nil
}

// end returns the fault. A file without rows is a fault too.
func (t *table) end() error {
	if t.fault == nil && len(t.seen) == 0 {
		t.fail("", "has a header, but no rows")
	}
	if t.fault == nil {
		return nil
	}
	return t.fault
}

// fail keeps the first fault. Later ones are mostly its consequences and would only confuse.
func (t *table) fail(column, format string, args ...any) {
	if t.fault == nil {
		t.fault = &InputError{t.file, t.line, column, fmt.Sprintf(format, args...), orbit.ErrInvalid}
	}
}

// field returns the text in a column of the current row; "" if there is no such column. The text is valid until the
// next row is read.
func (t *table) field(column string) string {
	if i, ok := t.at[column]; ok {
		return t.row[i]
	}
	return ""
}

// text returns a column that must not be empty. It returns a copy, because the reader uses the memory of the row again
// for the next one.
func (t *table) text(column string) string {
	if t.field(column) == "" {
		t.fail(column, "is empty")
	}
	return strings.Clone(t.field(column))
}

// number returns a column that must be a whole number from 0 to most.
func (t *table) number(column string, most int64) int64 {
	text := t.field(column)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		t.fail(column, "%s is out of range", text)
	case err != nil:
		t.fail(column, "%q is not a whole number", text)
	case n < 0:
		t.fail(column, "%d is negative", n)
	case n > most:
		t.fail(column, "%d is more than %d", n, most)
	}
	return n
}

// mebibytes returns in bytes a column that is in MiB.
func (t *table) mebibytes(column string) int64 { return t.number(column, math.MaxInt64>>20) << 20 }
