// Package guard calls code of importers. Such code may panic, exit its goroutine, or return an error whose methods
// panic.
package guard

import (
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

// Crash is the error of a call that did not return: it panicked, or exited its goroutine.
type Crash struct {
	// How says how the call ended; it completes "it ...".
	How string
	// Stack is the stack of the panic; empty: the goroutine exited.
	Stack string
}

// Error says how the call ended, with the stack of a panic.
func (c *Crash) Error() string { return strings.TrimSpace("it " + c.How + "\n" + c.Stack) }

// Crashed reports whether an error from Call or Run is a crash itself. It does not unwrap the error, because that would
// call methods of importers.
func Crashed(err error) bool {
	_, crashed := err.(*Crash) //nolint:errorlint // an error that the call returned may wrap the crash of another
	return crashed
}

// Call calls f, and then calls then exactly once, with f's error or a [Crash]. If f exits the goroutine, Call exits it
// too after then has returned.
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

// CallDeep is Call for a new goroutine in which f needs much stack. It grows the stack in one step while the stack is
// empty. Without that the stack would grow step by step while f runs, each time with all frames on it, which takes
// longer than a short f. (A goroutine that is kept from call to call has a grown stack too, but it would outlive its
// caller, and no test in a synctest bubble could end.)
func CallDeep(f func() error, then func(error)) {
	growStack()
	Call(f, then)
}

// stackRoom is the size of a frame that makes the runtime grow the stack to 16 KiB, the largest that it keeps ready for
// new goroutines.
const stackRoom = 8 << 10

// growStack grows the stack by a frame of stackRoom bytes. The stack does not shrink before the next garbage
// collection.
//
//go:noinline
func growStack() byte {
	var room [stackRoom]byte
	return room[len(os.Args)%stackRoom]
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

// Said returns an error that wraps err and has its text, which is made now, under guard. If making the text fails, it
// returns a [Crash]. Nil stays nil.
func Said(err error) error {
	if err == nil {
		return nil
	}
	words, ok := text(err)
	if !ok {
		return &Crash{How: "failed with " + words}
	}
	return &said{words, err}
}

// said is an error with a text that was made beforehand.
type said struct {
	text string
	err  error
}

func (s *said) Error() string { return s.text }
func (s *said) Unwrap() error { return s.err }

// textTime bounds how long making the text of a value may take.
const textTime = time.Second

// Text returns the text of a value. Its methods Error and String are code of importers too, so they are called in a
// goroutine of their own. If they do not return in time, the text names the type.
func Text(value any) string {
	words, _ := text(value)
	return words
}

// text does the same as Text, and reports whether the text is the value's own.
func text(value any) (words string, own bool) {
	if words, own = value.(string); own {
		return words, true
	}
	made := make(chan string, 1)
	go func() {
		defer close(made)
		defer func() { _ = recover() }() // made is closed empty then, which the reader sees
		made <- fmt.Sprint(value)
	}()
	limit := time.NewTimer(textTime)
	defer limit.Stop()
	select {
	case words, own = <-made:
	case <-limit.C:
	}
	if !own {
		words = fmt.Sprintf("a %T, whose text panics, exits its goroutine or takes more than %v", value, textTime)
	}
	return words, own
}
