// Package checks is what the Go clients share: files to send, odd keys, comparisons, and one line per check.
package checks

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// OddKeys trip clients and servers; no client normalises these.
var OddKeys = []string{
	"with space", " leading", "trailing ", "plus+plus", "per%cent", "per%2Fcent", "ünïcödé/日本語", "emoji-🐈", "amp&and=equals",
	"semi;colon,comma", "hash#tag", "question?mark=1", "quote'single\"double", "paren(1)[2]{3}", "at@colon:tilde~bang!", "<xml>&amp;",
	"a", "a/b", "a-b", "a0", "back\\slash",
}

// Check is one line of the output.
type Check struct {
	Name string
	Run  func() error
}

// Run runs the checks in their order and ends the program, with 1 when one failed.
func Run(all []Check) {
	failed := 0
	for _, check := range all {
		if err := check.Run(); err != nil {
			failed++
			fmt.Printf("not ok %s\n    %.600s\n", check.Name, err)
		} else {
			fmt.Printf("ok %s\n", check.Name)
		}
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// First gives the first error that is one.
func First(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}

// Same says where two values differ.
func Same(got, expected any) error {
	if fmt.Sprint(got) != fmt.Sprint(expected) {
		return fmt.Errorf("got %.200v, expected %.200v", got, expected)
	}
	return nil
}

// SameBytes compares bodies, which nobody wants to read in full.
func SameBytes(got io.Reader, expected []byte) error {
	body, err := io.ReadAll(got)
	if err != nil {
		return err
	}
	if !bytes.Equal(body, expected) {
		return fmt.Errorf("%d bytes, not the %d expected", len(body), len(expected))
	}
	return nil
}

// File is one of those that every client sends.
func File(name string) []byte {
	body, err := os.ReadFile(filepath.Join(os.Getenv("FILES"), name))
	if err != nil {
		panic(err)
	}
	return body
}

// Fetch is a request of somebody who was handed a link: its answer must have this status, and for 200 this body.
func Fetch(method, link string, body []byte, status int, expected []byte) error {
	request, err := http.NewRequest(method, link, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != status {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("status %d, not %d: %s", answer.StatusCode, status, text)
	}
	return SameBytes(answer.Body, expected)
}

// Host is the server's, without the scheme.
func Host() string { return strings.SplitN(os.Getenv("ENDPOINT"), "://", 2)[1] }
