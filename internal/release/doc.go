// Package release tests that the modules of this repository can be published: a stranger who runs the `go get` of a README outside
// the repository gets a program that builds. It is a module of its own, so that golang.org/x/mod is no dependency of orbit's.
// Run it with -count=1: it reads files outside its module, and the go tool does not notice that those have changed.
package release
