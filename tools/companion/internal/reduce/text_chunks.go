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

// textChunks cuts a text into chunks of whole records.
type textChunks struct {
	from    io.Reader
	columns *rows.Columns
	cut     func(text []byte) int
	eager   bool   // give what there is, instead of waiting for a whole chunk
	rest    []byte // behind the last cut
	drop    bool   // until the next line end
	dropped int    // bytes since the last line end
	bad     int64  // lines given up
	err     error
	size    int
}

// begin reads until it has found the columns; a header that comes first is taken off.
func (c *textChunks) begin() error {
	buffer := make([]byte, 1<<16)
	for {
		columns, header, hasLine, err := rows.Of(c.rest)
		if err != nil {
			return err
		}
		if hasLine || c.err != nil || len(c.rest) >= longestLine {
			c.columns = columns
			if header {
				c.rest = c.rest[bytes.IndexByte(c.rest, '\n')+1:]
			}
			return nil
		}
		var n int
		n, c.err = c.from.Read(buffer)
		c.rest = append(c.rest, buffer[:n]...)
	}
}

// next fills a buffer with a chunk, and returns the buffer and the chunk's length; behind it stand rows.Room zeros.
// The length is 0 at the end of the text only, when err tells why it ended; rest is what follows the last record.
func (c *textChunks) next(buffer []byte) ([]byte, int) {
	if need := max(c.size, len(c.rest)) + rows.Room; len(buffer) < need {
		buffer = make([]byte, need)
	}
	n := copy(buffer, c.rest)
	for {
		for fresh := true; fresh || !c.eager && c.err == nil && n < len(buffer)-rows.Room; fresh = false {
			if c.err != nil || n == len(buffer)-rows.Room {
				break
			}
			var got int
			got, c.err = c.from.Read(buffer[n : len(buffer)-rows.Room])
			n += got
		}
		n = c.skip(buffer, n)
		end := c.cut(buffer[:n])
		if end > 0 || c.err != nil {
			c.rest = append(c.rest[:0], buffer[end:n]...)
			clear(buffer[end : end+rows.Room])
			return buffer, end
		}
		if n == len(buffer)-rows.Room {
			if n >= longestLine {
				c.drop, n = true, 0
				c.bad++
			} else {
				buffer = append(buffer, make([]byte, len(buffer))...)
			}
		}
	}
}

// skip takes the end of a line that was given up off the text.
func (c *textChunks) skip(text []byte, n int) int {
	if !c.drop {
		return n
	}
	end := bytes.IndexByte(text[:n], '\n')
	if end < 0 {
		if c.dropped += n; c.dropped > endlessLine {
			c.err = io.EOF
		}
		return 0
	}
	c.drop, c.dropped = false, 0
	return copy(text, text[end+1:n])
}

// torn tells whether the text ended within a line, and how many bad lines stand behind its last record.
func (c *textChunks) torn() (torn bool, bad int64) {
	lines := bytes.Count(c.rest, []byte{'\n'})
	return c.drop || len(c.rest) > 0 && c.rest[len(c.rest)-1] != '\n', int64(lines) + c.bad
}
