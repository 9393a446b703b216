<!doctype html><title>autoscaler</title>
