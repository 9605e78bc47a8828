// Package program is the common part of the examples' main functions: flags, interrupts, and the printing of errors.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

// Main parses the flags, calls run, and ends the process. The first interrupt ends the context of run, a second one the
// process.
func Main[O any](name string, parse func(args []string, w io.Writer) (O, error), run func(ctx context.Context, o O, out io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	context.AfterFunc(ctx, stop)
	o, err := parse(os.Args[1:], os.Stderr)
	if err == nil {
		err = run(ctx, o, os.Stdout)
	} else {
		err = &flagsError{err}
	}
	os.Exit(status(ctx, name, err, os.Stderr))
}

// flagsError is an error in the flags, which package flag has printed already.
type flagsError struct{ error }

func (e *flagsError) Unwrap() error { return e.error }

// status prints an error, and returns the exit status: 0 without an error and after a request for help, 2 for an error
// in the flags, else 1.
func status(ctx context.Context, name string, err error, w io.Writer) int {
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, new(*flagsError)):
		return 2
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		err = errors.New("interrupted")
	}
	fmt.Fprintf(w, "%s: %v\n", name, err)
	return 1
}

// Flags returns an empty set of flags. Its usage begins with what the program does, in one sentence.
func Flags(name, does string, w io.Writer) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(w)
	f.Usage = func() {
		fmt.Fprintf(w, "%s\n\nFlags:\n", does)
		f.PrintDefaults()
	}
	return f
}

// Parse parses the arguments, which must all be flags, and calls check for their values. It prints any error on the
// output of f.
func Parse(f *flag.FlagSet, args []string, check func() error) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	err := check()
	if f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q; everything is set by flags", f.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(f.Output(), "%s: %v\n", f.Name(), err)
	}
	return err
}
