package s3

import (
	"bytes"
	"html"
	"io"
	"strings"
)

// errorLimit is how much of an error answer is read.
const errorLimit = 16 << 10

// nonsense is why an answer is none.
type nonsense string

func (n nonsense) Error() string { return string(n) }

func isNonsense(err error) bool {
	_, is := err.(nonsense)
	return is
}

const errExcerpt = nonsense("more than such an answer says")

// excerpt keeps the beginning of what is written to it, and refuses the rest.
type excerpt struct{ kept []byte }

func (e *excerpt) reset() { e.kept = e.kept[:0] }

func (e *excerpt) Write(p []byte) (int, error) {
	n := min(len(p), errorLimit-len(e.kept))
	e.kept = append(e.kept, p[:n]...)
	if n < len(p) {
		return n, errExcerpt
	}
	return n, nil
}

// beginning keeps the first bytes of what is written to it, and passes all of it on.
type beginning struct {
	text *excerpt
	into io.Writer // nil: nobody
}

func (b *beginning) Write(p []byte) (int, error) {
	b.text.kept = append(b.text.kept, p[:min(len(p), errorLimit-len(b.text.kept))]...)
	if b.into == nil {
		return len(p), nil
	}
	return b.into.Write(p)
}

// element is the text of the first element of that name in a small document; empty: there is none.
func element(document []byte, name string) string {
	_, rest, found := bytes.Cut(document, []byte("<"+name+">"))
	text, _, closed := bytes.Cut(rest, []byte("</"+name+">"))
	if !found || !closed {
		return ""
	}
	return html.UnescapeString(string(text))
}

// errorCode is the code of an S3 error answer, a word that is safe to print; empty: it has none.
func errorCode(document []byte) string {
	code := element(document, "Code")
	if len(code) > 64 || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
		return ""
	}
	return code
}

// oneLine makes a message of a program fit for a row.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(c rune) bool { return c <= ' ' || c == '"' || c == 0x7f }), " ")
}
