// Package aggregates reads and writes .aggregates files: counts and histograms of request rows, in frames that add up.
//
// # The file
//
// A file is a sequence of frames, each with its own dictionaries. Where a key comes again, counts and sums are added,
// minima and maxima merged. A live run appends a frame every 10 s (60 s if the block is 60 s). A finished file ends with
// a frame of the kind "end". A torn last frame is left out. All numbers are little endian:
//
//	4 bytes  CBTF
//	1        version: 3; version 2 has a column bucket u4 in place of step
//	1        compression: 1 = zlib (RFC 1950)
//	4        length of the compressed payload
//	4        CRC-32 (IEEE) of the compressed payload
//	         the compressed payload
//
// The payload: u32 length of the header; the header (JSON, type Header); then the columns of the tables, in the order of
// the header, without padding. The header names each table with its number of rows and its columns: pairs of name and
// type (u1 u2 u4 unsigned, i8 signed). Columns may be added: go by the names and types of the header. The header of the
// end frame has, for each source, the Totals.
//
// # The tables
//
// Times are integer nanoseconds on the run's clock; blocks and seconds are since 1970. A request belongs to the second,
// and the block, in which it ended. Source, op, endpoint and error are indexes into the lists of the header; size is the
// number of bits of the size in bytes.
//
// counts, by block i8, source u2, op u1, endpoint u2, size u1:
//
//	n, failed                 u4   successful and failed requests
//	objects, bytes            i8   objects that successes moved or removed (1 for a LIST), and their bytes
//	total, min, max           i8   sum and extremes of the durations of the successes
//	failed_total, _min, _max  i8   the same for the failed requests
//	ttfb_n u4, ttfb_total, ttfb_min, ttfb_max i8   start to first byte
//
// latency, ttfb, failed: histograms of these groups. group u4 is a row number in counts of the same frame, step u2,
// count u4. The bucket of a row is the sum of all steps of the table up to the row, modulo 65536. The bucket of v is v
// below 2048; else, with e = bit length of v - 11, it is e * 1024 + (v >> e).
//
// seconds, by second i8, source u2, op u1:
//
//	n, failed                   u4   requests that ended in it
//	objects, bytes, total, max  i8   of the successes
//	first, last                 i8   when the first and the last success ended; 0: none
//	busy                        i8   nanoseconds in flight within this second, failed requests too
//	crossing                    u4   requests in flight when the second began
//
// errors, by block i8, source u2, op u1, endpoint u2, error u2: count u4.
// threads (end frame), by source u2, thread u4: last_end i8.
package aggregates
