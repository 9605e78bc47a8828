// Package guard calls code of importers, which may panic, exit its goroutine, or fail with a value whose text does.
package guard

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"
)

// Crash is the error of a call that did not return: it panicked, or exited its goroutine.
type Crash struct {
	// How completes "it ...".
	How string
	// Stack is where it panicked; empty: it exited.
	Stack string
}

// Error says how the call ended, with the stack of a panic.
func (c *Crash) Error() string { return strings.TrimSpace("it " + c.How + "\n" + c.Stack) }

// Crashed reports whether an error that Call or Run gives is a crash. What a returned error wraps does not count, and
// none of its methods is called.
func Crashed(err error) bool {
	_, crashed := err.(*Crash) //nolint:errorlint // an error that the call returned may wrap the crash of another
	return crashed
}

// Call calls f and then, exactly once, then with f's error or a [Crash]. If f exits the goroutine, so does Call after
// then has returned.
func Call(f func() error, then func(error)) {
	var err error = &Crash{How: "exited its goroutine"}
	defer func() { then(err) }()
	defer func() {
		if value := recover(); value != nil { // nil after runtime.Goexit
			err = &Crash{"panicked: " + Text(value), string(debug.Stack())}
		}
	}()
	err = f()
}

// Run calls f in a goroutine of its own and returns f's error or a [Crash].
func Run(f func() error) error {
	done := make(chan error, 1)
	go Call(f, func(err error) { done <- err })
	return <-done
}

// Do calls f in a goroutine of its own, and returns nil if it returns.
func Do(f func()) *Crash {
	crash, _ := Run(func() error { f(); return nil }).(*Crash) //nolint:errorlint // f returns no error
	return crash
}

// Said returns an error that wraps err and has its text, which is made now. Nil stays nil.
func Said(err error) error {
	if err == nil {
		return nil
	}
	return &said{Text(err), err}
}

type said struct {
	text string
	err  error
}

func (s *said) Error() string { return s.text }
func (s *said) Unwrap() error { return s.err }

// textTime is how long the text of a value may take.
const textTime = time.Second

// Text returns the text of a value. Its methods Error and String are code of importers too, so they are called in a
// goroutine of their own. If they do not return in time, the text names the type.
func Text(value any) string {
	if text, ok := value.(string); ok {
		return text
	}
	none := fmt.Sprintf("a %T, whose text panics, exits its goroutine or takes more than %v", value, textTime)
	made := make(chan string, 1)
	go func() {
		text := none
		defer func() {
			_ = recover() // the text says so
			made <- text
		}()
		text = fmt.Sprint(value)
	}()
	limit := time.NewTimer(textTime)
	defer limit.Stop()
	select {
	case text := <-made:
		return text
	case <-limit.C:
		return none
	}
}
