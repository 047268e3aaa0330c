#!/bin/sh
# SPDX-FileCopyrightText: the stile authors
# SPDX-License-Identifier: Apache-2.0
# A fence around your own items in DynamoDB: a holder that was paused writes after its lease, and is
# refused by a condition expression.
#
#     fenced-dynamodb.sh 'dynamodb://TABLE?region=REGION'
#
# The items may be in any table; here they are in the table of the locks. Needs curl, and keys in
# AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. With the AWS command line, the same request is
# `aws dynamodb update-item` with these expressions.
set -eu
url=${1:?usage: fenced-dynamodb.sh 'dynamodb://TABLE?region=REGION'}
STILE_ENGINE=$url
table=${url#dynamodb://} table=${table%%\?*}
region=${url##*region=} region=${region%%&*}
case $url in
*endpoint=*) endpoint=${url##*endpoint=} endpoint=${endpoint%%&*} ;;
*) endpoint=https://dynamodb.$region.amazonaws.com ;;
esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export STILE_ENGINE table region endpoint

# Writes a balance: write TOKEN VALUE. `fence` is the largest token that the item has seen. A smaller one is
# refused in the same step as the write, an equal one is the same holder's. A removal must leave
# the item with its fence: set an attribute "removed" instead.
cat > "$dir/write" <<'END'
curl -sS --fail --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" --aws-sigv4 "aws:amz:$region:dynamodb" \
    -H 'Content-Type: application/x-amz-json-1.0' -H 'X-Amz-Target: DynamoDB_20120810.UpdateItem' \
    -d '{"TableName": "'"$table"'", "Key": {"key": {"S": "app/balance"}},
         "UpdateExpression": "SET balance = :value, fence = :token",
         "ConditionExpression": "attribute_not_exists(fence) OR fence <= :token",
         "ExpressionAttributeValues": {":value": {"N": "'"$2"'"}, ":token": {"N": "'"$1"'"}}}' \
    "$endpoint/" >/dev/null
END

# The first holder works, and is paused.
early=$(stile run balance -- sh -c 'sh "$0/write" "$STILE_TOKEN" 100 && echo "$STILE_TOKEN"' "$dir")

# Its lease ends, and another holder works: with a larger token.
stile run balance -- sh -c 'sh "$0/write" "$STILE_TOKEN" 70' "$dir"

# It continues, too late: ConditionalCheckFailedException.
if sh "$dir/write" "$early" 200 2>/dev/null; then
    echo "the late write was accepted" >&2
    exit 1
fi
echo "the late write was refused"
