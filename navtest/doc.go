// Package navtest checks navigators.
package navtest
