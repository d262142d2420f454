# The steeping times are as agreed.
[ "$(sh tea/steep.sh green)" = 2 ]
[ "$(sh tea/steep.sh black)" = 4 ]
