package reduce

import (
	"bytes"
	"io"

	"cbt-plugins/companion/internal/rows"
)

// a line that is longer than this is no row
const longestLine = 1 << 22

// behind so many bytes without a line end the text has ended: a file of zeros may be endless
const endlessLine = 1 << 26

// blocks cuts a text into parts of whole records.
type blocks struct {
	from    io.Reader
	columns *rows.Columns
	cut     func(text []byte) int
	eager   bool   // give what there is, instead of waiting for a whole block
	rest    []byte // behind the last cut
	drop    bool   // until the next line end
	dropped int    // bytes since the last line end
	bad     int64  // lines given up
	err     error
	size    int
}

// begin reads until it has found the columns; a header that comes first is taken off.
func (b *blocks) begin() error {
	buffer := make([]byte, 1<<16)
	for {
		columns, header, hasLine, err := rows.Of(b.rest)
		if err != nil {
			return err
		}
		if hasLine || b.err != nil || len(b.rest) >= longestLine {
			b.columns = columns
			if header {
				b.rest = b.rest[bytes.IndexByte(b.rest, '\n')+1:]
			}
			return nil
		}
		var n int
		n, b.err = b.from.Read(buffer)
		b.rest = append(b.rest, buffer[:n]...)
	}
}

// next fills a buffer with a block, and returns the buffer and the block's length; behind it stand rows.Room zeros.
// The length is 0 at the end of the text only, when err tells why it ended; rest is what follows the last record.
func (b *blocks) next(buffer []byte) ([]byte, int) {
	if need := max(b.size, len(b.rest)) + rows.Room; len(buffer) < need {
		buffer = make([]byte, need)
	}
	n := copy(buffer, b.rest)
	for {
		for fresh := true; fresh || !b.eager && b.err == nil && n < len(buffer)-rows.Room; fresh = false {
			if b.err != nil || n == len(buffer)-rows.Room {
				break
			}
			var got int
			got, b.err = b.from.Read(buffer[n : len(buffer)-rows.Room])
			n += got
		}
		n = b.skip(buffer, n)
		end := b.cut(buffer[:n])
		if end > 0 || b.err != nil {
			b.rest = append(b.rest[:0], buffer[end:n]...)
			clear(buffer[end : end+rows.Room])
			return buffer, end
		}
		if n == len(buffer)-rows.Room {
			if n >= longestLine {
				b.drop, n = true, 0
				b.bad++
			} else {
				buffer = append(buffer, make([]byte, len(buffer))...)
			}
		}
	}
}

// skip takes the end of a line that was given up off the text.
func (b *blocks) skip(text []byte, n int) int {
	if !b.drop {
		return n
	}
	end := bytes.IndexByte(text[:n], '\n')
	if end < 0 {
		if b.dropped += n; b.dropped > endlessLine {
			b.err = io.EOF
		}
		return 0
	}
	b.drop, b.dropped = false, 0
	return copy(text, text[end+1:n])
}

// torn tells whether the text ended within a line, and how many bad lines stand behind its last record.
func (b *blocks) torn() (torn bool, bad int64) {
	lines := bytes.Count(b.rest, []byte{'\n'})
	return b.drop || len(b.rest) > 0 && b.rest[len(b.rest)-1] != '\n', int64(lines) + b.bad
}
