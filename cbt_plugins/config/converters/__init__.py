"""Converters: workloads of other programs as files of ours, one file for each program (`cbt-tools import`)."""
