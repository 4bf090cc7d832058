#!/bin/sh
# Add the rows of a day to the current model, and write lists and a recommender: refresh.sh ROWS [NAME]
# The folder has `current`, a link to the run of the day before, and `stock.csv` with the columns item, stock and brand.
set -eu
rows=$1
name=${2:-$(date +%F)}
dgcf update current "$rows" --window 365d --held-out 0 --out "runs/$name"
if [ -d "runs/$name" ]; then # there is none if nothing was new
    ln -sfn "runs/$name" current
fi
dgcf recommend current --all -k 50 --out "lists-$name.parquet" --items-table stock.csv --where "stock > 0" --max-per brand=2
dgcf export current --out "shop-$name.dgcf"
