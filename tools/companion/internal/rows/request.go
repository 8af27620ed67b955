// Package rows reads and writes request rows: a line of tab separated text for each finished request, as warp 0.6.9 and later
// and cbt-load print them.
package rows

import (
	"strconv"
)

// Header names the columns of the rows that the generators print, tab separated: those of warp 1.1 to 1.4.
const Header = "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns\tcat"

// Request is one finished request. Times are nanoseconds since the epoch on the clock of the node that made it.
type Request struct {
	Thread   uint32
	Op       string // GET PUT STAT DELETE LIST MULTIPART
	Objects  int64
	Bytes    int64
	Endpoint string
	File     string
	Err      string // empty: it succeeded. Begins with the kind of error
	Start    int64  // of an open loop: when it should have started
	First    int64  // first byte of the answer, 0: not known
	End      int64
	Duration int64
}

// Append adds a row as text, with its line end. Its columns are Header.
func Append(to []byte, index uint64, r *Request) []byte {
	to = strconv.AppendUint(to, index, 10)
	to = append(to, '\t')
	to = strconv.AppendUint(to, uint64(r.Thread), 10)
	to = append(to, '\t')
	to = append(to, r.Op...)
	to = append(to, '\t', '\t')
	to = strconv.AppendInt(to, r.Objects, 10)
	to = append(to, '\t')
	to = strconv.AppendInt(to, r.Bytes, 10)
	to = append(to, '\t')
	to = appendPlain(to, r.Endpoint)
	to = append(to, '\t')
	to = appendPlain(to, r.File)
	to = append(to, '\t')
	to = appendPlain(to, r.Err)
	to = append(to, '\t')
	to = AppendTime(to, r.Start)
	to = append(to, '\t')
	if r.First != 0 {
		to = AppendTime(to, r.First)
	}
	to = append(to, '\t')
	to = AppendTime(to, r.End)
	to = append(to, '\t')
	to = strconv.AppendInt(to, r.Duration, 10)
	return append(to, "\t0\n"...)
}

// appendPlain replaces what a reader of the rows would stumble over.
func appendPlain(to []byte, text string) []byte {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			to = append(to, '\'')
		case c < ' ' || c == 0x7f:
			to = append(to, ' ')
		default:
			to = append(to, c)
		}
	}
	return to
}

// AppendTime adds nanoseconds since the epoch as 2026-11-21T09:06:28.059836645Z; from 1970 to 9999.
func AppendTime(to []byte, ns int64) []byte {
	if ns < 0 {
		ns = 0
	}
	seconds, fraction := ns/1e9, ns%1e9
	year, month, day := civil(seconds / 86400)
	of := seconds % 86400
	to = appendDigits(to, year, 4)
	to = append(to, '-')
	to = appendDigits(to, month, 2)
	to = append(to, '-')
	to = appendDigits(to, day, 2)
	to = append(to, 'T')
	to = appendDigits(to, of/3600, 2)
	to = append(to, ':')
	to = appendDigits(to, of/60%60, 2)
	to = append(to, ':')
	to = appendDigits(to, of%60, 2)
	to = append(to, '.')
	to = appendDigits(to, fraction, 9)
	return append(to, 'Z')
}

// civil is the date of a day since 1970-01-01, by eras of 400 years that begin in March.
func civil(days int64) (year, month, day int64) {
	days += 719468
	era := days / 146097
	of := days - era*146097
	years := (of - of/1460 + of/36524 - of/146096) / 365
	dayOfYear := of - (365*years + years/4 - years/100)
	shifted := (5*dayOfYear + 2) / 153
	day = dayOfYear - (153*shifted+2)/5 + 1
	month = shifted + 3
	if month > 12 {
		month -= 12
	}
	year = years + era*400
	if month <= 2 {
		year++
	}
	return year, month, day
}

func appendDigits(to []byte, value int64, width int) []byte {
	to = append(to, "000000000"[:width]...)
	for at := len(to) - 1; width > 0; at, width = at-1, width-1 {
		to[at] = byte('0' + value%10)
		value /= 10
	}
	return to
}
