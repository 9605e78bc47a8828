package pgledger

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/orbitsched/orbit"
)

// Errors of logs in Postgres, to be tested with errors.Is.
var (
	// ErrSetup: the database, the schema or a table is missing, or the role is refused. Where SQL helps, the error's text has it.
	ErrSetup = errors.New("pgledger: an administrator has to set it up")
	// ErrNoLog: there is no log of this name, or no such schema, and LogOptions.Existing is set.
	ErrNoLog = errors.New("pgledger: there is no log of this name")
)

var (
	// errStandby is why a server cannot be read: what a standby shows may be old.
	errStandby = errors.New("the server is a standby; connect with target_session_attrs=read-write")
	// errLost is why a log cannot be continued.
	errLost = errors.New("the server does not have the entries that it has confirmed: was it restored from a backup, or replaced by a standby that lacked them?")
)

// nothingDone returns the error of a request of which it is certain that it has changed nothing.
func nothingDone(err error) error { return fmt.Errorf("%w: %w", orbit.ErrUnavailable, shorter(err)) }

// told is an error with another text than that of the errors that it is.
type told struct {
	text string
	is   []error
}

// Error returns the text.
func (e *told) Error() string { return e.text }

// Unwrap returns the errors.
func (e *told) Unwrap() []error { return e.is }

// What the driver says of a connection that failed: an address, the name that was resolved to it, and why, once more with the address.
var (
	attempt = regexp.MustCompile(`^(\S+) \(([^)]*)\): (.*)$`)
	dialled = regexp.MustCompile(`^dial error: (dial \w+ \S+: )?(connect: )?`)
)

// shorter returns an error of connecting as one line with each address once; the driver has a line for each attempt, and makes one with
// TLS and one without. Any other error is returned as it is.
func shorter(err error) error {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return err
	}
	var why []string
	for line := range strings.Lines(failed.Unwrap().Error()) {
		line = strings.TrimSpace(line)
		if part := attempt.FindStringSubmatch(line); part != nil {
			address, name, reason := part[1], part[2], dialled.ReplaceAllString(part[3], "")
			if !strings.HasPrefix(address, name) && !strings.HasPrefix(address, "["+name) {
				address += " (" + name + ")"
			}
			line = address + ": " + reason
		}
		if !slices.Contains(why, line) {
			why = append(why, line)
		}
	}
	return &told{strings.Replace(err.Error(), failed.Error(), strings.Join(why, "; "), 1), []error{err}}
}

// setup returns an error of the server as [ErrSetup], with what an administrator can do.
func setup(err error, todo string, args ...any) error {
	var said *pgconn.PgError
	errors.As(err, &said)
	return &told{said.Message + "; " + fmt.Sprintf(todo, args...), []error{ErrSetup, err}}
}

// outcome returns the error of a statement that has failed with err, so that it is orbit.ErrUnavailable only if nothing can
// have been done: the statement was not sent, or the server says that it has failed. The server says so before it begins to
// commit, and then sends no tag of completion. An error after the tag comes from the commit, or from what follows it. A fatal
// error ends a connection, perhaps one whose statement was committed. In both cases, and without any answer, nobody knows.
func outcome(err error, tag pgconn.CommandTag) error {
	var said *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case pgconn.SafeToRetry(err):
		return nothingDone(err)
	case errors.As(err, &said) && said.SeverityUnlocalized == "ERROR" && tag.String() == "":
		return nothingDone(err)
	}
	return err
}

// is reports whether the server has answered with an error of one of some classes or codes.
func is(err error, codes ...string) bool {
	var said *pgconn.PgError
	if !errors.As(err, &said) {
		return false
	}
	for _, code := range codes {
		if strings.HasPrefix(said.Code, code) {
			return true
		}
	}
	return false
}

// Codes of Postgres' errors.
const (
	noPermission = "42501"
	noTable      = "42P01"
	noSchema     = "3F000"
	noColumn     = "42703"
	noRole       = "28" // no such role, or another password
	noDatabase   = "3D000"
)
